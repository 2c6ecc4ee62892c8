import { createLookup } from '../db/batching/lookup.js';
import type { Database } from '../db/database.js';
import type { LaterStatus } from '../resources/command.js';
import { applyTransitions, type CommandRef } from './store.js';

/** Counts commands that entered a state. */
export interface CommandMetrics {
  entered(status: 'queued' | LaterStatus, count: number): void;
}

/** Marks a command as sent, durably, without effect unless it is queued. */
export type MarkSent = (command: CommandRef) => Promise<void>;

const max_batch_size = 1000;

/** Creates the function that marks commands as sent: those acknowledged together share a write, each once for all its readers. */
export function createSentMarker(db: Database, clock: () => number, metrics: CommandMetrics): MarkSent {
  return createLookup<CommandRef, void>({
    async fetch(commands) {
      const author = { now: Math.floor(clock() / 1000) };
      metrics.entered('sent', await applyTransitions(db, commands, 'sent', author));
      return new Map<string, void>();
    },
    keyOf: ({ id }) => id,
    maxBatchSize: max_batch_size,
  });
}
