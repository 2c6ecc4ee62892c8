import type { ClusterKey } from '../../db/clustered.js';
import type { Id } from '../../db/ids.js';
import type { OpaqueJson } from '../../db/opaque-json.js';
import type { StreamingDevice } from '../values/stream-values.js';

/** A device that has sent streams, as it was when they were accepted. */
export interface SendingDevice extends StreamingDevice {
  id_model?: string | undefined;
  /** Internal ids of the objects above it, from the top. */
  ancestors: readonly Id[];
  /** When a condition of an alarm rule was found to be met; absent while none is. Epoch seconds. */
  condition_met_at?: number | undefined;
  /** As it was before the streams were read that alarm rules compare. */
  stream_revision?: Id | undefined;
}

/** A data stream that has been stored. */
export interface ReceivedStream {
  _id: ClusterKey;
  device: SendingDevice;
  /** Epoch seconds. */
  at: number;
  data: OpaqueJson;
}

/**
 * Loads the alarm rules of an account. @returns undefined if there are none, else a function that looks at data streams that
 * are durable, by request and in order of their receipt
 */
export type PrepareEvaluation = (account: string) => EvaluateStreams | undefined;
export type EvaluateStreams = (requests: readonly (readonly ReceivedStream[])[]) => Promise<Evaluation>;

/** Effects that streams may have. */
export interface Evaluation {
  /** The move of the deadlines of a device; undefined without a rule for it. */
  markOf(device: SendingDevice): ConditionMark | undefined;
  /**
   * Changes alarms, once the deadlines are moved and before the senders are answered.
   * @param stream_revision of the devices @param signal ends it between two changes
   */
  complete(stream_revision: Id, signal: AbortSignal): Promise<void>;
}

/**
 * Part of a write to a device: `isUnmarked` lets it match only while no condition is met, so that nothing has to be looked
 * up; `met_at` says that one may be met from now on.
 */
export type ConditionMark = { isUnmarked: true } | { met_at: number };
