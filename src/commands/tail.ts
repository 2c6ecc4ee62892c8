import type { Database, Log } from '../db/database.js';
import { type ChangeEntry, createChangeTail } from '../http/live/change-tail.js';
import type { Tail } from '../http/live/tail.js';
import { command } from '../resources/index.js';

/** A command that was queued for a device. */
export type CommandEntry = ChangeEntry<{ device: string }>;

/** Creates the tail of new commands. */
export function createCommandTail(db: Database, log: Log): Tail<CommandEntry> {
  return createChangeTail<{ device: string }>(db, log, {
    collection: command.plural,
    pipeline: [
      { $match: { operationType: 'insert' } },
      { $project: { clusterTime: 1, 'fullDocument.account': 1, 'fullDocument.device': 1 } },
    ],
    complete: async (changes) => changes.map(({ fullDocument }) => fullDocument as { account: string; device: string }),
  });
}
