import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Entry, Truck } from './trucks.js';

export const queryNames = ['last locations', 'low fuel', 'load of a fleet by hours', 'activity of a truck'] as const;
export type QueryName = (typeof queryNames)[number];

/** Below this fuel state a truck is low on fuel. */
export const low_fuel = 0.1;
/** Length of the steps in which a truck is active or not, in seconds. */
export const activity_s = 600;

/** A store of the messages of trucks, empty but for the trucks themselves. */
export interface Peer {
  name: string;
  /** Stores batches, some at once; all are durable when it resolves. */
  load(batches: Iterable<readonly Entry[]>): Promise<void>;
  /** CPU time of all its processes since their starts, in seconds. */
  readCpu(): Promise<number>;
  /** Bytes on disk of what was loaded, once it is written in its final form. */
  measureSize(): Promise<number>;
  /** Answers a query. @returns the milliseconds and the number of rows or points, which are compared */
  ask(query: QueryName): Promise<{ took_ms: number; rows: number }>;
  stop(): Promise<void>;
}

/** The fleet, the truck and the span that queries name. */
export interface Subject {
  fleet: string;
  truck: Truck;
  /** Bounds of `at`, epoch seconds. */
  from: number;
  to: number;
}

/** Takes batches from one iterator at once. */
export async function sendAtOnce(
  batches: Iterable<readonly Entry[]>,
  senders: number,
  send: (batch: readonly Entry[], sender: number) => Promise<void>,
): Promise<void> {
  const iterator = batches[Symbol.iterator]();
  await Promise.all(
    Array.from({ length: senders }, async (_, sender) => {
      for (let next = iterator.next(); next.done !== true; next = iterator.next()) await send(next.value, sender);
    }),
  );
}

/** Measures how long `work` takes. */
export async function timed(work: () => Promise<number>): Promise<{ took_ms: number; rows: number }> {
  const begun_at = performance.now();
  const rows = await work();
  return { took_ms: performance.now() - begun_at, rows };
}

/** Adds up the sizes of the files below a folder, as allocated on disk. */
export async function measureFolder(folder: string): Promise<number> {
  let bytes = 0;
  for (const entry of await readdir(folder, { withFileTypes: true, recursive: true })) {
    if (!entry.isFile()) continue;
    const { blocks } = await stat(join(entry.parentPath, entry.name)).catch(() => ({ blocks: 0 }));
    bytes += blocks * 512;
  }
  return bytes;
}

/** CPU time of a process and its children, ended ones included, in seconds. */
export async function readTreeCpu(pid: number): Promise<number> {
  const own = await readTimes(pid);
  const numbers = (await readdir('/proc')).filter((name) => /^[0-9]+$/.test(name));
  const others = await Promise.all(numbers.map((name) => readTimes(Number(name))));
  const children = others.filter(({ parent }) => parent === pid);
  return [own, ...children].reduce((sum, { cpu_s }) => sum + cpu_s, 0);
}

const ticks_per_s = 100;

async function readTimes(pid: number): Promise<{ parent: number; cpu_s: number }> {
  const text = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  // the name, in parentheses, may have spaces
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  const ticks = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0);
  return { parent: Number(fields[1]), cpu_s: Number.isNaN(ticks) ? 0 : ticks / ticks_per_s };
}

const stable_ms = 15_000;

/** Waits until a size has not changed for a while. */
export async function waitForSize(measure: () => Promise<number>): Promise<number> {
  for (let last = -1; ; await sleep(stable_ms)) {
    const bytes = await measure();
    if (bytes === last) return bytes;
    last = bytes;
  }
}
