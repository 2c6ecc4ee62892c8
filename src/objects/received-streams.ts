import type { Id } from '../db/ids.js';
import type { OpaqueJson } from '../db/opaque-json.js';

/** A device that has sent streams, as it was when they were accepted. */
export interface SendingDevice {
  _id: Id;
  account: string;
  id_developer: string;
  id_model?: string | undefined;
  /** Internal ids of the objects above it, from the top. */
  ancestors: readonly Id[];
}

/** A data stream that has been stored. */
export interface ReceivedStream {
  _id?: unknown;
  device: SendingDevice;
  /** Epoch seconds. */
  at: number;
  data: OpaqueJson;
}

/** Looks at data streams that are durable, by request and in order of their receipt, before their senders are answered. */
export type ObserveStreams = (requests: readonly (readonly ReceivedStream[])[]) => Promise<void> | undefined;
