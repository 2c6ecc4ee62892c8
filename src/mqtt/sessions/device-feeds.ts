import type { CommandEntry } from '../../commands/tail.js';
import type { StateEntry } from '../../device-state/tail.js';
import type { FeedEntry, Tail, TailSubscriber } from '../../http/live/tail.js';
import { awaitLater, getOrStart } from '../../lib/promises.js';
import { formatDeviceTopic, isServiceTopic } from '../protocol/topics.js';
import { type CommandWakes, createCommandWakes } from './command-wakes.js';
import type { DeviceFeed } from './device-feed.js';
import type { DeviceLink } from './device-link.js';
import { createFilterTree } from './filter-tree.js';

/** Reports whether a filter may cover topics that feeds bring. */
export const isFed = (filter: string): boolean => isServiceTopic(filter) || /[+#]/.test(filter);

/** The feeds of the connections of one account, woken by what is queued or desired anywhere. */
export class DeviceFeeds {
  readonly commands: CommandWakes;
  private readonly filters = createFilterTree<DeviceFeed>();
  private readonly feeds = new Set<DeviceFeed>();
  private readonly subscribed = new Map<string, Promise<void>>();
  private readonly onCommand: TailSubscriber<CommandEntry>;
  private readonly onState: TailSubscriber<StateEntry>;
  private isClosed = false;

  /** Reads nothing before the first filter. */
  constructor(
    private readonly account: string,
    private readonly link: DeviceLink,
  ) {
    this.commands = createCommandWakes(account, link, (device) => this.findFollowers(device, 'commands'));
    this.onCommand = this.createSubscriber(({ device, parent }) => this.commands.wake(device, { parent }));
    this.onState = this.createSubscriber((entry) => {
      for (const feed of this.findFollowers(entry.device, 'state/desired')) feed.sendState(entry);
    });
  }

  /** Hands what a filter covers to a feed from now on, and sends what there is; states only where they are wanted. */
  follow(feed: DeviceFeed, filter: string, isRetainedWanted: boolean): void {
    this.filters.add(filter, feed, { qos: 1 });
    this.feeds.add(feed);
    const watched = awaitLater(this.ensureSubscribed());
    watched.catch((error) => feed.fail(error));
    feed.follow(filter, watched, isRetainedWanted);
  }

  /** Hands what a filter covers to a feed no longer. */
  unfollow(feed: DeviceFeed, filter: string): void {
    this.filters.remove(filter, feed);
  }

  /** Forgets a feed whose connection has ended, after its last filter. */
  leave(feed: DeviceFeed): void {
    this.feeds.delete(feed);
    feed.close();
  }

  /** Ends with the broker of the account. */
  close(): void {
    this.isClosed = true;
    this.link.commandTail.unsubscribe(this.onCommand);
    this.link.stateTail.unsubscribe(this.onState);
  }

  private findFollowers(device: string, channel: 'commands' | 'state/desired'): Iterable<DeviceFeed> {
    return this.filters.match(formatDeviceTopic(device, channel)).keys();
  }

  private createSubscriber<Entry extends FeedEntry>(receive: (entry: Entry) => void): TailSubscriber<Entry> {
    return {
      account: this.account,
      needsPreparation: false,
      receive: (entries) => {
        for (const entry of entries) receive(entry);
      },
      lose: () => this.startOver(),
    };
  }

  private ensureSubscribed(): Promise<void> {
    return getOrStart(this.subscribed, this.account, async () => {
      const { commandTail, stateTail } = this.link;
      await Promise.all([subscribeAgain(commandTail, this.onCommand), subscribeAgain(stateTail, this.onState)]);
    });
  }

  /** Changes were missed: what is stored has them. */
  private startOver(): void {
    if (this.isClosed) return;
    this.subscribed.clear();
    this.ensureSubscribed().then(
      () => {
        for (const feed of this.feeds) feed.catchUp();
      },
      (error) => {
        for (const feed of this.feeds) feed.fail(error);
      },
    );
  }
}

async function subscribeAgain<Entry>(tail: Tail<Entry>, subscriber: TailSubscriber<Entry>): Promise<void> {
  tail.unsubscribe(subscriber);
  await tail.subscribe(subscriber);
}
