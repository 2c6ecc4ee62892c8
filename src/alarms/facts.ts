import type { ReceivedStream, SendingDevice } from '../objects/received-streams.js';
import { keyOfStream } from '../objects/stream-values.js';
import { statusOf } from '../resources/device/status.js';
import { type DataPath, readPath } from '../schema/data-path.js';
import type { FactReader } from './fact-reader.js';

/** Streams of one request from one device. */
export interface Step {
  device: SendingDevice;
  /** Data in order of `at`, and of receipt where that is equal. */
  entries: readonly { at: number; data: unknown }[];
  /** Streams that were received after them, by `keyOfStream`. */
  later: ReadonlySet<string>;
}

/** Values and properties of a device, as conditions see them at one moment. */
export interface Facts {
  /** Epoch seconds. */
  now: number;
  /** @returns undefined if the path was never sent */
  findLast(path: DataPath): Promise<unknown>;
  /** Finds when the path was last received before the streams that are looked at, if that is after `since` (epoch seconds). */
  findReceipt(path: DataPath, since: number): Promise<number | undefined>;
  findStatus(): Promise<string>;
  /** The streams that are looked at have the path, whenever their time comes. */
  hasPath(path: DataPath): boolean;
  /** One of the streams that are looked at has the path, its time has come, and none with the path is later. */
  isSent(path: DataPath): Promise<boolean>;
}

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
  const entries = streams.map(({ at, data }) => ({ at, data: data.parse() }));
  return {
    device,
    entries: entries.length > 1 ? entries.toSorted((a, b) => a.at - b.at) : entries,
    later: new Set(received.map(keyOfStream)),
  };
}

/** Finds the last of the sent values of a path whose time has come. */
export function findSent({ entries }: Step, path: DataPath, now: number): { value: unknown; at: number } | undefined {
  for (let index = entries.length - 1; index >= 0; index--) {
    const { at, data } = entries[index] ?? { at: Number.POSITIVE_INFINITY, data: undefined };
    if (at > now) continue;
    const value = readPath(data, path);
    if (value !== undefined) return { value, at };
  }
  return undefined;
}

/** Reports whether one of the streams has a path, whenever its time comes. */
export function hasSent({ entries }: Step, path: DataPath): boolean {
  return entries.some(({ data }) => readPath(data, path) !== undefined);
}

/** Creates the facts of a device; each is read once. */
export function createFacts(
  reader: FactReader,
  device: SendingDevice,
  now: number,
  { step, due_since, isTrusted = false }: Looked,
): Facts {
  const values = new Map<string, Promise<unknown>>();

  async function readLast(path: DataPath): Promise<unknown> {
    const sent = step && findSent(step, path, now);
    if (isTrusted && sent !== undefined) return sent.value;
    const stored = await findStored(path, sent?.at);
    return stored === undefined ? sent?.value : stored.value;
  }

  /** Finds the last stored value of a path, if it is after a time (epoch seconds). */
  function findStored(path: DataPath, after: number | undefined) {
    const query = { path, until: now, ...(after !== undefined && { after }), ...(step && { ignored: step.later }) };
    return reader.findLastValue(device, query);
  }

  return {
    now,
    findLast(path) {
      const value = values.get(path.text) ?? readLast(path);
      values.set(path.text, value);
      return value;
    },
    findReceipt: (path, since) => reader.findReceipt(device, path, since),
    async findStatus() {
      const { stream_due_at = 0, status_due_at = 0 } = (await reader.findDevice(device._id)) ?? {};
      return statusOf(stream_due_at, status_due_at, now);
    },
    hasPath: (path) => step !== undefined && hasSent(step, path),
    async isSent(path) {
      const sent = step && findSent(step, path, now);
      if (sent !== undefined) return (await findStored(path, sent.at)) === undefined;
      if (due_since === undefined) return false;
      const query = { path, from: due_since, until: now };
      return (await reader.findLastValue(device, query)) !== undefined;
    },
  };
}
