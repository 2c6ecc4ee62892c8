import mongoose, { type mongo } from 'mongoose';

const { Double, Long } = mongoose.mongo;

/** Place of a copy; what is absent is that of the sample. */
interface Place {
  device?: string;
  /** Internal id of the device. */
  parent?: unknown;
  at?: number;
  /** Orders copies of the same time; default: that of the sample. */
  number?: number;
}

/** Copies a stored stream to another place (docs/decisions/0024-streams-clustered-by-device.md). */
export function copyStream(sample: mongo.Document, { device, parent, at, number = 0 }: Place): mongo.Document {
  const { _id: key } = sample;
  const _id = {
    account: key.account,
    device: device ?? key.device,
    at: new Double(at ?? key.at),
    n: Long.fromValue(key.n).add(number),
  };
  return { ...sample, _id, ...(parent !== undefined && { parent }) };
}
