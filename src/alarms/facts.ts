import type { mongo } from 'mongoose';
import { getOrStart } from '../lib/promises.js';
import type { ReceivedStream, SendingDevice } from '../objects/receipts/received-streams.js';
import { keyOfStream } from '../objects/values/stream-values.js';
import { statusOf } from '../resources/device/status.js';
import { type DataPath, readPath } from '../schema/data-path.js';
import type { FactReader } from './fact-reader.js';

/** Streams of one request from one device. */
export interface Step {
  device: SendingDevice;
  /** In order of `at`, and of receipt where that is equal. */
  entries: readonly Entry[];
  /** Streams that were received after them, by `keyOfStream`. */
  later: ReadonlySet<string>;
}

interface Entry {
  at: number;
  /** Number of the stream: in order of receipt. */
  n: mongo.Long;
  data: unknown;
}

interface LastValue {
  value: unknown;
  /** `at` of its stream. */
  at: number;
  /** Its stream is one of those that are looked at. */
  isSent: boolean;
}

export type Facts = ReturnType<typeof createFacts>;

/** Streams that are looked at: those of a request, or those whose time has come since another time (epoch seconds). */
interface Looked {
  step?: Step;
  due_since?: number;
  /** A value that was sent counts as the last one: whether a later one is stored is found out later. */
  isTrusted?: boolean;
}

/** Groups streams of one request by device. @param received those that were received after it */
export function buildStep(
  device: SendingDevice,
  streams: readonly ReceivedStream[],
  received: readonly ReceivedStream[],
): Step {
  const entries = streams.map(({ _id, at, data }) => ({ at, n: _id.n as mongo.Long, data: data.parse() }));
  return {
    device,
    entries: entries.length > 1 ? entries.toSorted((a, b) => a.at - b.at || a.n.compare(b.n)) : entries,
    later: new Set(received.map(keyOfStream)),
  };
}

/** Finds the last of the sent values of a path whose time has come. */
export function findSent({ entries }: Step, path: DataPath, now: number): (Entry & { value: unknown }) | undefined {
  for (let index = entries.length - 1; index >= 0; index--) {
    const entry = entries[index];
    if (entry === undefined || entry.at > now) continue;
    const value = readPath(entry.data, path);
    if (value !== undefined) return { ...entry, value };
  }
  return undefined;
}

/** Reports whether one of the streams has a path, whenever its time comes. */
export function hasSent({ entries }: Step, path: DataPath): boolean {
  return entries.some(({ data }) => readPath(data, path) !== undefined);
}

/** Creates the values and properties of a device, as conditions see them at one moment; each is read once. */
export function createFacts(
  reader: FactReader,
  device: SendingDevice,
  now: number,
  { step, due_since, isTrusted = false }: Looked,
) {
  const values = new Map<string, Promise<LastValue | undefined>>();

  async function readLast(path: DataPath): Promise<LastValue | undefined> {
    const sent = step && findSent(step, path, now);
    const stored = isTrusted && sent !== undefined ? undefined : await findStored(path, sent);
    const last = stored ?? sent;
    return last && { value: last.value, at: last.at, isSent: stored === undefined };
  }

  /** Finds the last stored value of a path, if its stream is later than the one that was sent. */
  function findStored(path: DataPath, sent: Entry | undefined) {
    const after = sent && { after: sent.at, n: sent.n };
    return reader.findLastValue(device, { path, until: now, ...after, ...(step && { ignored: step.later }) });
  }

  return {
    /** Epoch seconds. */
    now,
    /** @returns undefined if the path was never sent */
    findLast: (path: DataPath) => getOrStart(values, path.text, () => readLast(path)),
    /** Finds when the path was last received before the streams that are looked at, if that is after `since` (epoch seconds). */
    findReceipt: (path: DataPath, since: number) => reader.findReceipt(device, path, since),
    async findStatus(): Promise<string> {
      const { stream_due_at = 0, status_due_at = 0 } = (await reader.findDevice(device._id)) ?? {};
      return statusOf(stream_due_at, status_due_at, now);
    },
    /** The streams that are looked at have the path, whenever their time comes. */
    hasPath: (path: DataPath) => step !== undefined && hasSent(step, path),
    /** One of the streams that are looked at has the path, its time has come, and none with the path is later. */
    async isSent(path: DataPath): Promise<boolean> {
      const sent = step && findSent(step, path, now);
      if (sent !== undefined) return (await findStored(path, sent)) === undefined;
      if (due_since === undefined) return false;
      const query = { path, from: due_since, until: now };
      return (await reader.findLastValue(device, query)) !== undefined;
    },
  };
}
