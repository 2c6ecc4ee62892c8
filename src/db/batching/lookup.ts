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
    value?: Value | undefined;
  }
  const limits = { maxBatchSize, maxInFlight: 2, accountOf: ({ key }: Job) => accountOf(key) };
  const submit = createBatcher<Job>(async (jobs) => {
    const keys = new Map(jobs.map(({ key }) => [keyOf(key), key]));
    const values = await fetch([...keys.values()]);
    for (const job of jobs) job.value = values.get(keyOf(job.key));
  }, limits);
  return async (key) => {
    const job: Job = { key };
    await submit(job);
    return job.value;
  };
}
