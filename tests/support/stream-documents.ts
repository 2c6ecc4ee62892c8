import mongoose, { type mongo } from 'mongoose';

const { Double, Long } = mongoose.mongo;

interface StreamOptions {
  account?: string;
  device: string;
  /** Internal id of the device. */
  parent: unknown;
  at: number;
  /** Epoch seconds. */
  created_at?: number;
  /** Place among the streams of the same second. */
  place: number;
  data: object;
  _t?: string;
  protocol?: string;
  owner?: string;
}

/** Builds a stream as it is stored (docs/decisions/0024-streams-clustered-by-device.md). */
export function buildStreamDocument(options: StreamOptions): { _id: mongo.UUID; [path: string]: unknown } {
  const { account = 'acme', device, parent, at, created_at = 1, place, data, ...others } = options;
  const n = Long.fromNumber(created_at * 1000)
    .shiftLeft(20)
    .add(place);
  const document = {
    _id: { account, device, at: new Double(at), n },
    parent,
    ...{ _t: 'str', protocol: 'http', data, owner: 'alice', ...others },
  };
  return document as never;
}
