import type { StoredNode } from '../db/batching/loader.js';
import type { Database } from '../db/database.js';
import type { Feed, FeedSink } from '../http/live/feed.js';
import type { Tail, TailSubscriber } from '../http/live/tail.js';
import { createWakeUp } from '../lib/wake-up.js';
import type { MarkSent } from './delivery.js';
import { type DeliveredCommand, findOpenCommands } from './store.js';
import type { CommandEntry } from './tail.js';

interface Options {
  db: Database;
  tail: Tail<CommandEntry>;
  device: StoredNode;
  /** Epoch milliseconds. */
  clock: () => number;
  /** Absent: the reader only looks. */
  markSent: MarkSent | undefined;
  /** Reports whether the device is there and the reader may see it: it may be moved, or deleted and made again. */
  isSame: () => Promise<boolean>;
}

const heartbeat_ms = 15_000;
const heartbeat = Buffer.from(':\n\n');

/** Opens the feed of the commands of a device: open ones first, each once (reference/commands.md#over-http). */
export async function openCommandFeed(options: Options): Promise<Feed> {
  const { db, tail, device, clock, markSent, isSame } = options;
  const news = createWakeUp();
  let isLost = false;
  const subscriber: TailSubscriber<CommandEntry> = {
    account: device.account,
    needsPreparation: false,
    receive(entries) {
      if (entries.some((entry) => entry.device === device.id_developer)) news.wake();
    },
    lose() {
      isLost = true;
      news.wake();
    },
  };
  await tail.subscribe(subscriber);
  let written = new Set<string>();

  async function sendOpen(sink: FeedSink, ended: AbortSignal): Promise<void> {
    const open = await findOpenCommands(db, device._id, Math.floor(clock() / 1000));
    const before = written;
    written = new Set(open.map(({ ref }) => ref.id).filter((id) => before.has(id)));
    for (const command of open) {
      if (written.has(command.ref.id)) continue;
      if (ended.aborted) return;
      const isDrained = sink.write(formatCommand(command));
      written.add(command.ref.id);
      if (command.status === 'queued') await markSent?.(command.ref);
      if (!isDrained) await sink.drained();
    }
  }

  return {
    async send(sink, ended) {
      const isEnded = () => ended.aborted || isLost;
      sink.write(heartbeat);
      const beat = setInterval(() => sink.write(heartbeat), heartbeat_ms);
      ended.addEventListener('abort', news.wake);
      try {
        while (!isEnded() && (await isSame())) {
          await sendOpen(sink, ended);
          await news.wait();
        }
        return 'ended';
      } finally {
        clearInterval(beat);
      }
    },
    close: async () => tail.unsubscribe(subscriber),
  };
}

function formatCommand({ ref, json }: DeliveredCommand): Buffer {
  return Buffer.from(`id: ${ref.id}\nevent: command\ndata: ${json}\n\n`);
}
