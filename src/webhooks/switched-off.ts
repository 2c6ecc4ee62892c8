import { readClusterTime } from '../db/change-stream.js';
import type { Collection, Database } from '../db/database.js';
import { writeEventId } from '../events/store.js';
import { webhook, webhookretry, webhookstate } from '../resources/index.js';

/** Says in the database that webhooks were switched off since they were last sent. */
const mark = { _id: 'webhooks-off' };
const marksOf = (db: Database): Collection<typeof mark> => db.collection('maintenance');

/** Remembers that nothing is sent. */
export async function recordSwitchedOff(db: Database): Promise<void> {
  await marksOf(db).updateOne(mark, { $setOnInsert: mark }, { upsert: true });
}

/**
 * Lets all webhooks begin with the events of later changes if they were switched off. By the time of the database, because
 * the log may not have the events of earlier ones yet.
 */
export async function ignoreMissedEvents(db: Database): Promise<void> {
  if ((await marksOf(db).findOne(mark)) === null) return;
  const end = writeEventId(await readClusterTime(db), 0);
  await db.collection(webhook.plural).updateMany({}, { $set: { log_from: end } });
  await db.collection(webhookstate.plural).updateMany({}, { $set: { cursor: end }, $unset: { failing_since: 1 } });
  await db.collection(webhookretry.plural).deleteMany({});
  await marksOf(db).deleteOne(mark);
}
