/** A data stream as the model keeps it, in order of receipt. */
export interface ModelValueStream {
  /** Epoch seconds. */
  at: number;
  data: Readonly<Record<string, unknown>>;
}

/** A device with its streams; devices are in order of creation. */
export interface ModelDevice {
  name: string;
  streams: ModelValueStream[];
}

/** A condition of a list on the last values at a path. */
export type ModelCondition = { exact: string } | { from?: number; to?: number };

/** The value of the last stream that has the path at `now`; of equal times that of the one received last. */
function lastValue({ streams }: ModelDevice, path: string, now: number): unknown {
  let last: { at: number; value: unknown } | undefined;
  for (const { at, data } of streams)
    if (at <= now && Object.hasOwn(data, path) && (last === undefined || at >= last.at))
      last = { at, value: data[path] };
  return last?.value;
}

function isMatching(value: unknown, condition: ModelCondition): boolean {
  if ('exact' in condition) {
    if (typeof value === 'number') return condition.exact !== '' && Number(condition.exact) === value;
    return typeof value === 'boolean' ? String(value) === condition.exact : value === condition.exact;
  }
  const { from = Number.NEGATIVE_INFINITY, to = Number.POSITIVE_INFINITY } = condition;
  return typeof value === 'number' && value >= from && value <= to;
}

/** Place of a value among those of other types. */
function rankOf(value: unknown): number {
  return ['number', 'string', 'boolean'].indexOf(typeof value);
}

/** The names of the devices that match, in the order of `sort=latest.PATH`. */
export function listByModel(
  devices: readonly ModelDevice[],
  path: string,
  { condition, now }: { condition?: ModelCondition; now: number },
): string[] {
  const valued = devices.map((device) => ({ name: device.name, value: lastValue(device, path, now) }));
  const matching = condition === undefined ? valued : valued.filter(({ value }) => isMatching(value, condition));
  // sorting is stable
  const sorted = matching.toSorted((a, b) => {
    const [rank, other] = [rankOf(a.value), rankOf(b.value)];
    if (rank !== other || rank < 0) return rank - other;
    if (a.value === b.value) return 0;
    return (a.value as number) < (b.value as number) ? -1 : 1;
  });
  return sorted.map(({ name }) => name);
}

/** Paths of random streams. */
export const modelPaths = ['bar', 'temp', 'valve'] as const;

const values = [1, 2, 3, 4, 5, '2', '3', 'open', 'true', true, false, null, [1], { x: 1 }];

/** Makes a random stream: nearly always of now, some late, some of the future, some without a path. */
export function createRandomStream(random: () => number, now: number): ModelValueStream {
  const pick = () => values[Math.floor(random() * values.length)];
  const shift = random() < 0.6 ? 0 : random() < 0.6 ? -Math.ceil(random() * 20) : Math.ceil(random() * 10);
  return {
    at: now + shift,
    data: Object.fromEntries(modelPaths.flatMap((path) => (random() < 0.6 ? [[path, pick()]] : []))),
  };
}

/** Makes a random condition. */
export function createRandomCondition(random: () => number): ModelCondition | undefined {
  const number = () => Math.floor(random() * 6);
  if (random() < 0.3) return undefined;
  if (random() < 0.5) {
    const scalars = values.filter((value) => value === null || typeof value !== 'object');
    return { exact: String(scalars[Math.floor(random() * scalars.length)]) };
  }
  const from = number();
  return { from, ...(random() < 0.5 && { to: from + number() }) };
}

/** Formats a condition as parameters of the list of devices. */
export function formatCondition(path: string, condition: ModelCondition | undefined): string {
  if (condition === undefined) return '';
  if ('exact' in condition) return `&latest.${path}=${encodeURIComponent(condition.exact)}`;
  const { from, to } = condition;
  return `&latest.${path}_from=${from}${to === undefined ? '' : `&latest.${path}_to=${to}`}`;
}
