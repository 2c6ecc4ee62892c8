import type { Database, Log } from '../db/database.js';
import type { Id } from '../db/ids.js';
import { type ChangeEntry, createChangeTail } from '../http/live/change-tail.js';
import type { Tail } from '../http/live/tail.js';
import { command } from '../resources/index.js';

/** The device that a command was queued for. */
interface QueuedFor {
  device: string;
  parent: Id;
}

/** A command that was queued for a device. */
export type CommandEntry = ChangeEntry<QueuedFor>;

/** Creates the tail of new commands. */
export function createCommandTail(db: Database, log: Log): Tail<CommandEntry> {
  return createChangeTail<QueuedFor>(db, log, {
    collection: command.plural,
    pipeline: [
      { $match: { operationType: 'insert' } },
      { $project: { clusterTime: 1, fullDocument: { account: 1, device: 1, parent: 1 } } },
    ],
    complete: async (changes) => changes.map(({ fullDocument }) => fullDocument as QueuedFor & { account: string }),
  });
}
