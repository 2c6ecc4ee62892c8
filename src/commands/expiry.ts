import type { Database, JobDeps } from '../db/database.js';
import { deleteInChunks } from '../db/delete-in-chunks.js';
import { type LeasedJob, startPeriodicJob } from '../db/leased-job.js';
import { findAll } from '../db/raw-find.js';
import type { CommandMetrics } from './delivery.js';
import { applyTransitions, commandsOf, isOpen } from './store.js';

interface Deps extends JobDeps {
  metrics: CommandMetrics;
}

const period_ms = 2000;
const batch_size = 500;
/** Finished commands stay for so long. */
const command_retention_s = 30 * 86_400;

/** Lets commands expire within 5 s of their time, on one instance. */
export function startCommandExpiry({ db, log, clock, metrics }: Deps): LeasedJob {
  const work = () => expireCommands(db, Math.floor(clock() / 1000), metrics);
  return startPeriodicJob({ db, log, name: 'command-expiry', period_ms, mayRun: db.isClockRight, work });
}

/** Deletes the commands that ended 30 days before `now` (epoch seconds). */
export async function removeOldCommands(db: Database, now: number): Promise<void> {
  const filter = { finished_at: { $lt: now - command_retention_s } };
  await deleteInChunks(db.collection('commands'), filter, { sort: { finished_at: 1 } });
}

/** Lets one batch of commands expire. @returns whether there may be more */
async function expireCommands(db: Database, now: number, metrics: CommandMetrics): Promise<boolean> {
  const filter = { expires_at: { $lte: now }, ...isOpen };
  if (!(await db.findDue([{ collection: commandsOf(db), filter }]))) return false;
  const projection = { id: 1, name: 1 };
  const due = await findAll(commandsOf(db), { filter, projection, sort: { expires_at: 1 }, limit: batch_size });
  metrics.entered('expired', await applyTransitions(db, due, 'expired', { now }));
  return due.length === batch_size;
}
