import type { Id } from '../db/ids.js';
import { OpaqueJson } from '../db/opaque-json.js';
import { AppError } from '../errors.js';
import { createShares } from '../lib/shares.js';
import { runWithTimeLimit, TimeLimitError } from '../lib/time-limit.js';
import type { Evaluation, PrepareEvaluation, ReceivedStream } from '../objects/received-streams.js';
import type { ValueRecorder } from '../objects/values/recorder.js';
import type { StreamDocument } from './documents.js';
import type { Devices, Submission } from './senders.js';

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

/** Compares the data streams of each account with its alarm rules. @param documents the stored streams of each request */
export async function compareWithRules(
  documents: ReadonlyMap<Pick<Submission, 'account'>, readonly StreamDocument[]>,
  devices: Devices,
  { prepareEvaluation, isMeasured }: { prepareEvaluation: PrepareEvaluation | undefined; isMeasured: boolean },
): Promise<ReadonlyMap<string, AccountPart>> {
  const requests = new Map<string, ReceivedStream[][]>();
  for (const [{ account }, stored] of documents) {
    const streams = receivedStreams(stored, devices);
    const ofAccount = requests.get(account);
    if (ofAccount === undefined) requests.set(account, [streams]);
    else ofAccount.push(streams);
  }
  const parts = new Map<string, AccountPart>();
  for (const [account, ofAccount] of requests) {
    const evaluation = await prepareEvaluation?.(account)?.(ofAccount);
    parts.set(account, { account, streams: ofAccount.flat(), evaluation, isMeasured });
  }
  return parts;
}
