/** A data stream as the model keeps it, in order of receipt. */
export interface SummaryModelStream {
  /** Epoch seconds. */
  at: number;
  data: Readonly<Record<string, unknown>>;
  /** Retention has removed it: its numbers are left. */
  isRemoved?: boolean;
}

/** An entry of a series, with `sum` in the place of `avg`. */
interface ModelEntry {
  at: number;
  count: number;
  values: Record<string, unknown>;
}

/** Aggregates that are compared. */
export const modelAggregates = 'sum,count,min,max,first,last';

/** Paths of random streams: numbers, numbers and texts, numbers that some streams have. */
export const summaryPaths = ['t', 'm', 'deep.x'] as const;

const isScalar = (value: unknown) => ['number', 'string', 'boolean'].includes(typeof value);

function readValue({ data }: SummaryModelStream, path: string): unknown {
  return path === 'deep.x' ? (data.deep as { x?: unknown } | undefined)?.x : data[path];
}

/** Computes a series of one path from streams. @param beginningOf the beginning of the bucket of a time */
export function computeSeries(
  streams: readonly SummaryModelStream[],
  path: string,
  beginningOf: (at: number) => number,
): ModelEntry[] {
  const buckets = new Map<number, SummaryModelStream[]>();
  for (const stream of streams) {
    const at = beginningOf(stream.at);
    buckets.set(at, [...(buckets.get(at) ?? []), stream]);
  }
  return [...buckets]
    .toSorted(([at], [other]) => at - other)
    .map(([at, own]) => ({ at, count: own.length, values: aggregate(own, path) }));
}

function aggregate(streams: readonly SummaryModelStream[], path: string): Record<string, unknown> {
  const numbers = streams.map((stream) => readValue(stream, path)).filter((value) => typeof value === 'number');
  const scalars = streams.filter((stream) =>
    stream.isRemoved ? typeof readValue(stream, path) === 'number' : isScalar(readValue(stream, path)),
  );
  const values: Record<string, unknown> = {
    sum: numbers.reduce((sum, value) => sum + value, 0),
    count: numbers.length,
  };
  if (numbers.length > 0) Object.assign(values, { min: Math.min(...numbers), max: Math.max(...numbers) });
  // of equal times the one received last
  let [first, last] = [scalars[0], scalars[0]];
  for (const stream of scalars) {
    if (first === undefined || stream.at <= first.at) first = stream;
    if (last === undefined || stream.at >= last.at) last = stream;
  }
  if (first && last) Object.assign(values, { first: readValue(first, path), last: readValue(last, path) });
  return values;
}

/** Reads the entries of an answer in the form of the model. */
export function readEntries(result: readonly Record<string, unknown>[], path: string): ModelEntry[] {
  return result.map((entry) => ({
    at: Number(entry.at),
    count: Number(entry.count),
    values: entry[path] as Record<string, unknown>,
  }));
}

/** Writes entries with sorted members, for comparisons. Numbers of random streams are multiples of 1/4: sums are exact. */
export function formatEntries(entries: readonly ModelEntry[]): string {
  return entries
    .map(({ at, count, values }) => `${at} ${count} ${JSON.stringify(Object.entries(values).toSorted())}`)
    .join('\n');
}

/** Creates the data of a stream. */
export function createRandomData(random: () => number): Record<string, unknown> {
  const number = () => Math.floor(random() * 400) / 4 - 20;
  const mixed = random();
  return {
    ...(random() < 0.9 && { t: number() }),
    m: mixed < 0.3 ? 'text' : mixed < 0.4 ? random() < 0.5 : number(),
    ...(random() < 0.5 && { deep: { x: number() } }),
  };
}
