import mongoose from 'mongoose';
import type { Database } from '../../db/database.js';
import { type Id, keyOfId } from '../../db/ids.js';
import { runPipeline } from '../../db/raw-find.js';
import { openStates, type Severity, severities } from '../../resources/alarm-states.js';
import { alarm } from '../../resources/index.js';
import type { MemberRequest } from '../../schema/requested.js';
import { getId } from '../../serialize/bson.js';
import type { OperationContext } from '../context.js';
import type { Bson, RequestedMember } from '../page.js';

interface Group {
  _id: { device: Id; severity: Severity };
  count: number;
}

/** `alarms` of devices: numbers of open ones by severity (reference/devices.md#open-alarms). */
export const openAlarmCounts: RequestedMember = { load };

async function load(
  { store, account }: OperationContext,
  documents: readonly Bson[],
  { isWhole, members }: MemberRequest,
): Promise<ReadonlyMap<Bson, Bson>> {
  const devices = documents.map((bson) => getId(bson, '_id'));
  const counts = await countOpenAlarms(store.db, account, devices);
  const shownSeverities = severities.filter((severity) => isWhole || members.includes(severity));
  return new Map(
    documents.map((bson) => {
      const numbers = counts.get(keyOfId(getId(bson, '_id')));
      const shown = shownSeverities.map((severity) => [severity, numbers?.get(severity) ?? 0]);
      return [bson, mongoose.mongo.BSON.serialize(Object.fromEntries(shown))];
    }),
  );
}

async function countOpenAlarms(
  db: Database,
  account: string,
  devices: readonly Id[],
): Promise<ReadonlyMap<string, ReadonlyMap<Severity, number>>> {
  const pipeline = [
    { $match: { parent: { $in: devices }, is_current: true, account, state: { $in: openStates } } },
    { $group: { _id: { device: '$parent', severity: '$severity' }, count: { $sum: 1 } } },
  ];
  const options = { hint: { parent: 1, is_current: 1 } };
  const groups = await runPipeline<Group>(db.collection(alarm.plural), pipeline, options);
  const counts = new Map<string, Map<Severity, number>>();
  for (const { _id, count } of groups) {
    const key = keyOfId(_id.device);
    counts.set(key, (counts.get(key) ?? new Map<Severity, number>()).set(_id.severity, count));
  }
  return counts;
}
