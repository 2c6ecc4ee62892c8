import { setImmediate as nextTurn } from 'node:timers/promises';
import type { CommandRef } from '../../commands/store.js';
import { awaitLater } from '../../lib/promises.js';
import type { RequestedFilter, SubscribePacket } from '../connection/packets.js';
import { reasons } from '../connection/reasons.js';
import { findSharedFilter } from '../protocol/topics.js';
import type { StoredSubscription, SubscriptionOptions } from '../store/sessions.js';
import type { Delivery } from './delivery.js';
import type { DeviceFeed } from './device-feed.js';
import { type DeviceFeeds, isFed } from './device-feeds.js';
import type { FilterTree } from './filter-tree.js';
import type { RetainedMessages } from './retained-messages.js';
import type { Rules } from './rules.js';
import type { Session } from './session.js';
import { findMatch } from './session-filters.js';

/** Filters that are looked at in one turn of the event loop. */
const filters_per_turn = 500;
/** The topics of a device, 100 of its own and six of the service, and filters over them. */
const max_subscriptions = 200;

/** Clients of this process that get a message. */
export type Subscribers = FilterTree<Delivery>;

interface Deps {
  session: Session;
  delivery: Delivery;
  rules: Rules;
  subscribers: Subscribers;
  retained: RetainedMessages;
  deviceFeeds: DeviceFeeds;
  openFeed(): DeviceFeed;
  /** Stores the subscriptions; concurrent calls share a write. @throws what the database throws */
  save(): Promise<void>;
}

const isGranted = (code: number | undefined) => code !== undefined && code < reasons.unspecified;

/** Creates the subscriptions of a connection that has none yet. */
export function createSubscriptions(deps: Deps) {
  const { session, delivery, rules, subscribers, retained, deviceFeeds } = deps;
  const { outbox, subscriptions } = session;
  let feed: DeviceFeed | undefined;
  /** Filters are granted in the order of their packets, and stored together. */
  let granting: Promise<unknown> = Promise.resolve();
  let sending: Promise<void> = Promise.resolve();

  function follow(filter: string, isRetainedWanted: boolean): void {
    // it may have been unsubscribed before it was stored
    if (!isFed(filter) || findSharedFilter(filter) !== undefined || !outbox.isOpen() || !subscriptions.has(filter))
      return;
    feed ??= deps.openFeed();
    deviceFeeds.follow(feed, filter, isRetainedWanted);
  }

  function put(filter: string, granted: SubscriptionOptions): void {
    subscriptions.set(filter, granted);
    if (outbox.isOpen()) addTo(filter, granted);
  }

  /** The stored session is the member of a shared subscription. */
  function addTo(filter: string, granted: SubscriptionOptions): void {
    if (findSharedFilter(filter) === undefined) subscribers.add(filter, delivery, granted);
  }

  function stopDelivery(filter: string): void {
    subscribers.remove(filter, delivery);
    if (feed !== undefined) deviceFeeds.unfollow(feed, filter);
  }

  function remove(filter: string): boolean {
    stopDelivery(filter);
    return subscriptions.delete(filter);
  }

  /** @returns the code of a filter that is granted or refused */
  function grant(requested: RequestedFilter, id: number | undefined, refusal: number | undefined): number {
    const { filter, qos, no_local, retain_as_published } = requested;
    if (refusal !== undefined) return refusal;
    if (!subscriptions.has(filter) && subscriptions.size >= max_subscriptions) {
      rules.refuseSubscription(session, filter, 'too many');
      return reasons.quota;
    }
    put(filter, {
      qos,
      ...(id !== undefined && { id }),
      ...(no_local && { no_local }),
      ...(retain_as_published && { retain_as_published }),
    });
    return qos;
  }

  async function grantAll({ filters, properties }: SubscribePacket): Promise<number[]> {
    const names = filters.map(({ filter }) => filter);
    const refusals = await rules.findRefusals(session, names);
    const codes: number[] = [];
    for (const [index, requested] of filters.entries()) {
      codes.push(grant(requested, properties.subscription_id, refusals[index]));
      if (index % filters_per_turn === filters_per_turn - 1) await nextTurn();
    }
    return codes;
  }

  async function sendRetained(filters: readonly string[]): Promise<void> {
    for await (const message of retained.find(filters)) {
      if (!outbox.isOpen()) return;
      const match = findMatch(subscriptions, message.topic);
      if (match !== undefined) await delivery.deliverStored({ ...message, retain: true }, match);
    }
  }

  return {
    /** Grants filters one after the other, calls back with a code for each, and sends what is retained. */
    async subscribe(packet: SubscribePacket, granted: (codes: readonly number[]) => void): Promise<void> {
      let before: ReadonlyMap<string, SubscriptionOptions> = subscriptions;
      try {
        const grants = awaitLater(
          granting.then(() => {
            before = new Map(subscriptions);
            return grantAll(packet);
          }),
        );
        granting = grants.catch(() => undefined);
        const saving = awaitLater(
          grants.then(async (codes) => {
            if (codes.some(isGranted)) await deps.save();
            return codes;
          }),
        );
        // what the client publishes next is queued for itself, too
        session.storeQueue = awaitLater(Promise.allSettled([session.storeQueue, saving]).then(() => undefined));
        const codes = await saving;
        granted(codes);
        const filters = packet.filters.filter((_filter, index) => isGranted(codes[index]));
        const wanted = filters.filter(
          ({ filter, retain_handling }) =>
            findSharedFilter(filter) === undefined &&
            (retain_handling === 0 || (retain_handling === 1 && !before.has(filter))),
        );
        for (const each of filters) follow(each.filter, wanted.includes(each));
        sending = sending.then(() => sendRetained(wanted.map(({ filter }) => filter))).catch(rules.failed);
        await sending;
      } catch (error) {
        rules.failed(error);
        for (const { filter } of packet.filters) {
          const previous = before.get(filter);
          if (previous === undefined) remove(filter);
          else put(filter, previous);
        }
        granted(packet.filters.map(() => reasons.unspecified));
      }
    },
    /** @returns a code for each filter */
    async unsubscribe(filters: readonly string[]): Promise<readonly number[]> {
      const removing = awaitLater(granting.then(() => filters.map(remove)));
      granting = removing;
      const found = await removing;
      const saved = awaitLater(deps.save().catch(rules.failed));
      if (session.queue !== undefined) await saved;
      return found.map((isFound) => (isFound ? reasons.success : reasons.no_subscription_existed));
    },
    /** Takes over the subscriptions of a persistent session that are still allowed. */
    async restore(stored: readonly StoredSubscription[]): Promise<void> {
      const refusals = await rules.findRefusals(
        session,
        stored.map(({ topic }) => topic),
      );
      for (const [index, { topic, ...options }] of stored.entries())
        if (refusals[index] === undefined) subscriptions.set(topic, options);
      if (subscriptions.size < stored.length) await deps.save();
    },
    /** Begins to deliver what they cover. */
    start(): void {
      for (const [filter, granted] of subscriptions) {
        addTo(filter, granted);
        follow(filter, true);
      }
    },
    close(): void {
      for (const filter of subscriptions.keys()) stopDelivery(filter);
      if (feed !== undefined) deviceFeeds.leave(feed);
    },
    /** The client has acknowledged a command. */
    acknowledge: (command: CommandRef) => feed?.acknowledge(command),
  };
}
