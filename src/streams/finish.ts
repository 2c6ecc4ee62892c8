import type { ClusteredDocument } from '../db/clustered.js';
import type { Database } from '../db/database.js';
import type { Id } from '../db/ids.js';
import { OpaqueJson } from '../db/opaque-json.js';
import { AppError } from '../errors.js';
import { groupBy } from '../lib/group-by.js';
import { createShares } from '../lib/shares.js';
import { runWithTimeLimit, TimeLimitError } from '../lib/time-limit.js';
import type { Evaluation, PrepareEvaluation, ReceivedStream } from '../objects/receipts/received-streams.js';
import type { ValueRecorder } from '../objects/values/recorder.js';
import { findEnds } from '../objects/values/stream-values.js';
import type { StreamDocument } from './documents.js';
import type { Device, Devices, Submission } from './senders.js';

/** Data streams of one account in a batch. */
export interface AccountPart {
  account: string;
  streams: readonly ReceivedStream[];
  evaluation: Evaluation | undefined;
  /** Lists may be filtered by values of the streams. */
  isMeasured: boolean;
}

/** Parts that are finished at the same time: what they read and write shares commands. */
const max_finishing = 64;
const max_finishing_per_account = 2;
/** The sender of a part that takes longer was answered long ago, and sends again. */
const finish_limit_ms = 30_000;

/**
 * Brings values and alarms of an account up to date with streams that are stored, in the account's share: only its own
 * senders wait for it. @throws AppError database (5031), also if it takes longer than 30 s
 */
export type FinishPart = (part: AccountPart, stream_revision: Id) => Promise<void>;

interface StoredRequest extends Pick<Submission, 'account' | 'isImport'> {
  documents: readonly StreamDocument[];
}

interface Comparison {
  prepareEvaluation: PrepareEvaluation | undefined;
  isMeasured: boolean;
  /** `at` of the last data stream by device, before imported ones were stored. */
  last: ReadonlyMap<string, number>;
}

/** Creates the function for all accounts of a process. */
export function createFinisher(values: Pick<ValueRecorder, 'record'>): FinishPart {
  const finishing = createShares({
    capacity: max_finishing,
    max_per_account: max_finishing_per_account,
    max_waiting: Number.POSITIVE_INFINITY,
  });
  return async ({ account, streams, evaluation, isMeasured }, stream_revision) => {
    if (evaluation === undefined && !isMeasured) return;
    const finish = async (signal: AbortSignal) => {
      // before alarms: the values decide which devices a saved filter selects
      await values.record(streams);
      await evaluation?.complete(stream_revision, signal);
    };
    try {
      await finishing.run(account, () => runWithTimeLimit(finish_limit_ms, undefined, finish));
    } catch (error) {
      throw error instanceof TimeLimitError ? new AppError('database', {}, { cause: error }) : error;
    }
  };
}

/** The data streams among stored ones, for the evaluation of alarm rules. */
function receivedStreams(stored: readonly StreamDocument[], devices: Devices): ReceivedStream[] {
  return stored.flatMap(({ _id, _t, data }) => {
    const sender = devices.get(_id.device);
    if (_t !== 'str' || sender === undefined || !(data instanceof OpaqueJson)) return [];
    return [{ _id, device: sender, at: _id.at.value, data }];
  });
}

/** Finds `at` of the last data stream of devices, up to `now` (epoch seconds), that have one. */
export async function findLastTimes(
  db: Database,
  senders: Iterable<Device>,
  now: number,
): Promise<ReadonlyMap<string, number>> {
  const last = [{ $sort: { _id: -1 } }, { $limit: 1 }, { $project: { _id: 1 } }];
  const found = await findEnds<ClusteredDocument>(db, [...senders], { until: now }, last);
  return new Map(found.map(({ _id }) => [String(_id.device), Number(_id.at)]));
}

/** Compares the stored data streams of each account with its alarm rules; imported ones only if they are newer, together. */
export async function compareWithRules(
  requests: readonly StoredRequest[],
  devices: Devices,
  { prepareEvaluation, isMeasured, last }: Comparison,
): Promise<ReadonlyMap<string, AccountPart>> {
  const isNewer = ({ device, at }: ReceivedStream) => at > (last.get(device.id_developer) ?? Number.NEGATIVE_INFINITY);
  const parts = new Map<string, AccountPart>();
  for (const [account, own] of groupBy(requests, (request) => request.account)) {
    const received = own.map(({ documents, isImport }) => ({ isImport, streams: receivedStreams(documents, devices) }));
    const sent = received.filter(({ isImport }) => isImport !== true).map(({ streams }) => streams);
    const imported = received.filter(({ isImport }) => isImport === true).flatMap(({ streams }) => streams);
    const compared = imported.length === 0 ? sent : [...sent, imported.filter(isNewer)];
    const evaluation = await prepareEvaluation?.(account)?.(compared);
    parts.set(account, { account, streams: received.flatMap(({ streams }) => streams), evaluation, isMeasured });
  }
  return parts;
}
