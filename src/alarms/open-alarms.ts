import { type Database, read_limit_ms } from '../db/database.js';
import { runPipeline } from '../db/raw-find.js';
import { openStates, type Severity } from '../resources/alarm-states.js';
import { alarm, alarmrule } from '../resources/index.js';

/** Number of open alarms of an account. */
export interface OpenAlarms {
  account: string;
  severity: Severity;
  count: number;
}

/** Counts the open alarms of all accounts by account and severity; an open alarm has a rule. */
export async function countOpenAlarms(db: Database): Promise<OpenAlarms[]> {
  const readPreference = 'secondaryPreferred' as const;
  const options = { maxTimeMS: read_limit_ms, readPreference };
  const accounts = await db.collection(alarmrule.plural).distinct('account', {}, options);
  if (accounts.length === 0) return [];
  const pipeline = [
    { $match: { account: { $in: accounts }, state: { $in: openStates } } },
    { $group: { _id: { account: '$account', severity: '$severity' }, count: { $sum: 1 } } },
    { $project: { _id: 0, account: '$_id.account', severity: '$_id.severity', count: 1 } },
  ];
  const hint = { account: 1, state: 1, raised_at: 1, _id: 1 };
  return runPipeline(db.collection(alarm.plural), pipeline, { readPreference, hint });
}
