import { awaitLater } from '../../lib/promises.js';
import { createBatcher } from './batcher.js';

/** Finds what belongs to a key, in one command with the other keys that are asked for at the same time. */
export type LookUp<Key, Value> = (key: Key) => Promise<Value | undefined>;

interface LookupOptions<Key, Value> {
  /** @returns values by `keyOf` */
  fetch(keys: readonly Key[]): Promise<ReadonlyMap<string, Value>>;
  /** Returns a text that is unique for a key. */
  keyOf(key: Key): string;
  /** Keys of one command. */
  maxBatchSize: number;
  /** Account of a key, as of `createBatcher`. */
  accountOf?: (key: Key) => string;
}

/** Creates a batched look-up (cf. DataLoader; docs/decisions/0008-batched-commands.md). */
export function createLookup<Key, Value>({
  fetch,
  keyOf,
  maxBatchSize,
  accountOf = () => '',
}: LookupOptions<Key, Value>): LookUp<Key, Value> {
  interface Job {
    key: Key;
    name: string;
    value?: Value | undefined;
  }
  /** Those that no command has taken yet: calls for the same key share one. */
  const queued = new Map<string, Promise<Value | undefined>>();
  const limits = { maxBatchSize, maxInFlight: 2, accountOf: ({ key }: Job) => accountOf(key) };
  const submit = createBatcher<Job>(async (jobs) => {
    for (const { name } of jobs) queued.delete(name);
    const values = await fetch(jobs.map(({ key }) => key));
    for (const job of jobs) job.value = values.get(job.name);
  }, limits);
  return (key) => {
    const name = keyOf(key);
    const same = queued.get(name);
    if (same !== undefined) return same;
    const job: Job = { key, name };
    const found = awaitLater(submit(job).then(() => job.value));
    queued.set(name, found);
    return found;
  };
}
