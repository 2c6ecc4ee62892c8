import type { CommandEntry } from '../../commands/tail.js';
import type { StateEntry } from '../../device-state/tail.js';
import type { FeedEntry, Tail, TailSubscriber } from '../../http/live/tail.js';
import { awaitLater, getOrStart } from '../../lib/promises.js';
import { formatDeviceTopic, isServiceTopic } from '../protocol/topics.js';
import { createCommandWakes } from './command-wakes.js';
import type { DeviceFeed } from './device-feed.js';
import type { DeviceLink } from './device-link.js';
import { createFilterTree } from './filter-tree.js';

/** Reports whether a filter may cover topics that feeds bring. */
export const isFed = (filter: string): boolean => isServiceTopic(filter) || /[+#]/.test(filter);

/** The feeds of the connections of one account, woken by what is queued or desired anywhere. */
export type DeviceFeeds = ReturnType<typeof createDeviceFeeds>;

/** Creates the feeds of an account; nothing is read before the first filter. */
export function createDeviceFeeds(account: string, link: DeviceLink) {
  const { commandTail, stateTail } = link;
  const filters = createFilterTree<DeviceFeed>();
  const feeds = new Set<DeviceFeed>();
  const subscribed = new Map<string, Promise<void>>();
  const commands = createCommandWakes(account, link, (device) =>
    filters.match(formatDeviceTopic(device, 'commands')).keys(),
  );
  let isClosed = false;

  function createSubscriber<Entry extends FeedEntry>(receive: (entry: Entry) => void): TailSubscriber<Entry> {
    return {
      account,
      needsPreparation: false,
      receive: (entries) => {
        for (const entry of entries) receive(entry);
      },
      lose: startOver,
    };
  }

  const onCommand = createSubscriber<CommandEntry>(({ device, parent }) => commands.wake(device, { parent }));
  const onState = createSubscriber<StateEntry>((entry) => {
    for (const feed of filters.match(formatDeviceTopic(entry.device, 'state/desired')).keys()) feed.sendState(entry);
  });

  async function subscribe(): Promise<void> {
    await Promise.all([subscribeTo(commandTail, onCommand), subscribeTo(stateTail, onState)]);
  }

  async function subscribeTo<Entry>(tail: Tail<Entry>, subscriber: TailSubscriber<Entry>): Promise<void> {
    tail.unsubscribe(subscriber);
    await tail.subscribe(subscriber);
  }

  /** Changes were missed: what is stored has them. */
  function startOver(): void {
    if (isClosed) return;
    subscribed.clear();
    ensureSubscribed().then(
      () => {
        for (const feed of feeds) feed.catchUp();
      },
      (error) => {
        for (const feed of feeds) feed.fail(error);
      },
    );
  }

  const ensureSubscribed = () => getOrStart(subscribed, account, subscribe);

  return {
    commands,
    /** Hands what a filter covers to a feed from now on, and sends what there is; states only where they are wanted. */
    follow(feed: DeviceFeed, filter: string, isRetainedWanted: boolean): void {
      filters.add(filter, feed, { qos: 1 });
      feeds.add(feed);
      const watched = awaitLater(ensureSubscribed());
      watched.catch(feed.fail);
      feed.follow(filter, watched, isRetainedWanted);
    },
    unfollow: (feed: DeviceFeed, filter: string) => filters.remove(filter, feed),
    /** Forgets a feed whose connection has ended, after its last filter. */
    leave(feed: DeviceFeed): void {
      feeds.delete(feed);
      feed.close();
    },
    close(): void {
      isClosed = true;
      commandTail.unsubscribe(onCommand);
      stateTail.unsubscribe(onState);
    },
  };
}
