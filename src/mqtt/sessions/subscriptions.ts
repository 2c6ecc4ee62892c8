import { setImmediate as nextTurn } from 'node:timers/promises';
import type { CommandRef } from '../../commands/store.js';
import { awaitLater } from '../../lib/promises.js';
import type { RequestedFilter, SubscribePacket } from '../connection/packets.js';
import { reasons } from '../connection/reasons.js';
import { findSharedFilter } from '../protocol/topics.js';
import type { StoredSubscription, SubscriptionOptions } from '../store/sessions.js';
import type { BrokerDeps } from './broker-deps.js';
import type { Delivery } from './delivery.js';
import type { DeviceFeed } from './device-feed.js';
import { type DeviceFeeds, isFed } from './device-feeds.js';
import type { FilterTree } from './filter-tree.js';
import type { RetainedMessages } from './retained-messages.js';
import type { Session } from './session.js';
import { findMatch } from './session-filters.js';

/** Filters that are looked at in one turn of the event loop. */
const filters_per_turn = 500;
/** The topics of a device, 100 of its own and six of the service, and filters over them. */
const max_subscriptions = 200;

/** Clients of this process that get a message. */
export type Subscribers = FilterTree<Delivery>;

/** Shared by the subscriptions of all clients of an account. */
export interface SubscriptionDeps extends Pick<BrokerDeps, 'rules'> {
  subscribers: Subscribers;
  retained: RetainedMessages;
  deviceFeeds: DeviceFeeds;
}

const isGranted = (code: number | undefined) => code !== undefined && code < reasons.unspecified;

/** The subscriptions of a connection. */
export class Subscriptions {
  private feed: DeviceFeed | undefined;
  /** Filters are granted in the order of their packets, and stored together. */
  private granting: Promise<unknown> | undefined;
  private sending: Promise<void> | undefined;

  /** @param save stores the subscriptions; concurrent calls share a write, and it throws what the database throws */
  constructor(
    private readonly session: Session,
    private readonly delivery: Delivery,
    private readonly deps: SubscriptionDeps,
    private readonly openFeed: () => DeviceFeed,
    private readonly save: () => Promise<void>,
  ) {}

  /** Grants filters one after the other, calls back with a code for each, and sends what is retained. */
  async subscribe(packet: SubscribePacket, granted: (codes: readonly number[]) => void): Promise<void> {
    const { session, deps } = this;
    let before: ReadonlyMap<string, SubscriptionOptions> = session.subscriptions;
    try {
      const grants = awaitLater(
        Promise.resolve(this.granting).then(() => {
          before = new Map(session.subscriptions);
          return this.grantAll(packet);
        }),
      );
      this.granting = grants.catch(() => undefined);
      const saving = awaitLater(
        grants.then(async (codes) => {
          if (codes.some(isGranted)) await this.save();
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
      for (const each of filters) this.follow(each.filter, wanted.includes(each));
      const topics = wanted.map(({ filter }) => filter);
      this.sending = (this.sending ?? Promise.resolve()).then(() => this.sendRetained(topics)).catch(deps.rules.failed);
      await this.sending;
    } catch (error) {
      deps.rules.failed(error);
      for (const { filter } of packet.filters) {
        const previous = before.get(filter);
        if (previous === undefined) this.remove(filter);
        else this.put(filter, previous);
      }
      granted(packet.filters.map(() => reasons.unspecified));
    }
  }

  /** @returns a code for each filter */
  async unsubscribe(filters: readonly string[]): Promise<readonly number[]> {
    const { session, deps } = this;
    const removing = awaitLater(
      Promise.resolve(this.granting).then(() => filters.map((filter) => this.remove(filter))),
    );
    this.granting = removing;
    const found = await removing;
    const saved = awaitLater(this.save().catch(deps.rules.failed));
    if (session.queue !== undefined) await saved;
    return found.map((isFound) => (isFound ? reasons.success : reasons.no_subscription_existed));
  }

  /** Takes over the subscriptions of a persistent session that are still allowed. */
  async restore(stored: readonly StoredSubscription[]): Promise<void> {
    const { session, deps } = this;
    const names = stored.map(({ topic }) => topic);
    const refusals = await deps.rules.findRefusals(session, names);
    for (const [index, { topic, ...options }] of stored.entries())
      if (refusals[index] === undefined) session.subscriptions.set(topic, options);
    if (session.subscriptions.size < stored.length) await this.save();
  }

  /** Begins to deliver what they cover. */
  start(): void {
    for (const [filter, granted] of this.session.subscriptions) {
      this.addTo(filter, granted);
      this.follow(filter, true);
    }
  }

  close(): void {
    const { session, deps } = this;
    for (const filter of session.subscriptions.keys()) this.stopDelivery(filter);
    if (this.feed !== undefined) deps.deviceFeeds.leave(this.feed);
  }

  /** The client has acknowledged a command. */
  acknowledge(command: CommandRef): void {
    this.feed?.acknowledge(command);
  }

  private follow(filter: string, isRetainedWanted: boolean): void {
    const { session, deps } = this;
    if (!isFed(filter) || findSharedFilter(filter) !== undefined) return;
    // it may have been unsubscribed before it was stored
    if (!session.outbox.isOpen() || !session.subscriptions.has(filter)) return;
    this.feed ??= this.openFeed();
    deps.deviceFeeds.follow(this.feed, filter, isRetainedWanted);
  }

  private put(filter: string, granted: SubscriptionOptions): void {
    const { session } = this;
    session.subscriptions.set(filter, granted);
    if (session.outbox.isOpen()) this.addTo(filter, granted);
  }

  /** The stored session is the member of a shared subscription. */
  private addTo(filter: string, granted: SubscriptionOptions): void {
    const { delivery, deps } = this;
    if (findSharedFilter(filter) === undefined) deps.subscribers.add(filter, delivery, granted);
  }

  private stopDelivery(filter: string): void {
    const { delivery, deps } = this;
    deps.subscribers.remove(filter, delivery);
    if (this.feed !== undefined) deps.deviceFeeds.unfollow(this.feed, filter);
  }

  private remove(filter: string): boolean {
    this.stopDelivery(filter);
    return this.session.subscriptions.delete(filter);
  }

  /** @returns the code of a filter that is granted or refused */
  private grant(requested: RequestedFilter, id: number | undefined, refusal: number | undefined): number {
    const { session, deps } = this;
    const { filter, qos, no_local, retain_as_published } = requested;
    if (refusal !== undefined) return refusal;
    if (!session.subscriptions.has(filter) && session.subscriptions.size >= max_subscriptions) {
      deps.rules.refuseSubscription(session, filter, 'too many');
      return reasons.quota;
    }
    this.put(filter, {
      qos,
      ...(id !== undefined && { id }),
      ...(no_local && { no_local }),
      ...(retain_as_published && { retain_as_published }),
    });
    return qos;
  }

  private async grantAll({ filters, properties }: SubscribePacket): Promise<number[]> {
    const { session, deps } = this;
    const names = filters.map(({ filter }) => filter);
    const refusals = await deps.rules.findRefusals(session, names);
    const codes: number[] = [];
    for (const [index, requested] of filters.entries()) {
      codes.push(this.grant(requested, properties.subscription_id, refusals[index]));
      if (index % filters_per_turn === filters_per_turn - 1) await nextTurn();
    }
    return codes;
  }

  private async sendRetained(filters: readonly string[]): Promise<void> {
    const { session, delivery, deps } = this;
    for await (const message of deps.retained.find(filters)) {
      if (!session.outbox.isOpen()) return;
      const match = findMatch(session.subscriptions, message.topic);
      if (match !== undefined) await delivery.deliverStored({ ...message, retain: true }, match);
    }
  }
}
