/**
 * Generates the messages of a fleet of trucks, with the parameters that TSBS describes for its workload `iot`: a message every 10 s
 * with seven readings and three diagnostics, some of them late or missing.
 */

export interface Truck {
  name: string;
  fleet: string;
  model: string;
  driver: string;
}

/** A message of a truck; each half is a row of TSBS. */
export interface Entry {
  truck: Truck;
  /** Epoch seconds. */
  at: number;
  readings: Record<(typeof readingNames)[number], number>;
  diagnostics: Record<(typeof diagnosticNames)[number], number>;
}

export const readingNames = [
  'latitude',
  'longitude',
  'elevation',
  'velocity',
  'heading',
  'grade',
  'fuel_consumption',
] as const;
export const diagnosticNames = ['fuel_state', 'current_load', 'status'] as const;
export const rows_per_entry = 2;
export const values_per_entry = readingNames.length + diagnosticNames.length;

export const fleets = ['East', 'West', 'North', 'South'] as const;
const models = ['F-150', 'G-2000', 'H-2'] as const;
const drivers = ['Albert', 'Andy', 'Derek', 'Rodney', 'Seth', 'Trish'] as const;

export const period_s = 10;
export const begin_at = 1_700_000_000;
const batch_size = 1000;
const missing = { entries: 0.1, batches: 0.01 };
const late = { entries: 0.3, batches: 0.05 };
/** Entries that wait at a time. */
const max_delayed = 6000;

export function createTrucks(count: number): Truck[] {
  const pick = <Item>(items: readonly Item[], number: number) => items[number % items.length] as Item;
  return Array.from({ length: count }, (_, number) => ({
    name: `truck-${number}`,
    fleet: pick(fleets, number),
    model: pick(models, Math.floor(number / fleets.length)),
    driver: pick(drivers, Math.floor(number / 7)),
  }));
}

/** Yields batches of entries in the order in which they arrive. @param random returns the same numbers in each run */
export function* createBatches(
  trucks: readonly Truck[],
  seconds: number,
  random: () => number,
): Generator<readonly Entry[]> {
  let held: readonly Entry[] | undefined;
  let batch: Entry[] = [];
  for (const entry of delaySome(createEntries(trucks, seconds, random), random)) {
    batch.push(entry);
    if (batch.length < batch_size) continue;
    if (random() < missing.batches) batch = [];
    else if (held === undefined && random() < late.batches) held = batch;
    else {
      yield batch;
      if (held !== undefined) yield held;
      held = undefined;
    }
    batch = [];
  }
  if (held !== undefined) yield held;
  if (batch.length > 0) yield batch;
}

function* delaySome(entries: Iterable<Entry>, random: () => number): Generator<Entry> {
  const delayed: Entry[] = [];
  for (const entry of entries) {
    if (random() < missing.entries) continue;
    if (random() < late.entries) delayed.push(entry);
    else yield entry;
    // as many leave as come
    if (delayed.length > max_delayed || (delayed.length > 0 && random() < late.entries)) {
      const place = Math.floor(random() * delayed.length);
      const [next] = delayed.splice(place, 1);
      if (next !== undefined) yield next;
    }
  }
  yield* delayed;
}

interface Motion {
  latitude: number;
  longitude: number;
  elevation: number;
  velocity: number;
  heading: number;
  fuel_state: number;
  load: number;
}

function* createEntries(trucks: readonly Truck[], seconds: number, random: () => number): Generator<Entry> {
  const motions = trucks.map(
    (): Motion => ({
      latitude: random() * 160 - 80,
      longitude: random() * 360 - 180,
      elevation: random() * 500,
      velocity: random() * 60,
      heading: random() * 360,
      fuel_state: random(),
      load: random() * 5000,
    }),
  );
  for (let elapsed_s = 0; elapsed_s < seconds; elapsed_s += period_s)
    for (const [number, truck] of trucks.entries()) {
      const motion = motions[number];
      if (motion !== undefined) yield move(truck, motion, begin_at + elapsed_s, random);
    }
}

const round = (value: number, decimals: number) => Number(value.toFixed(decimals));

function move(truck: Truck, motion: Motion, at: number, random: () => number): Entry {
  const step = (size: number) => (random() * 2 - 1) * size;
  motion.velocity = Math.min(100, Math.max(0, motion.velocity + step(10)));
  motion.heading = (motion.heading + step(10) + 360) % 360;
  motion.latitude += motion.velocity * 1e-5 * Math.cos((motion.heading * Math.PI) / 180);
  motion.longitude += motion.velocity * 1e-5 * Math.sin((motion.heading * Math.PI) / 180);
  motion.elevation = Math.max(0, motion.elevation + step(5));
  motion.fuel_state = motion.fuel_state < 0.01 ? 1 : motion.fuel_state - random() * 0.001;
  if (random() < 0.001) motion.load = random() * 5000;
  return {
    truck,
    at,
    readings: {
      latitude: round(motion.latitude, 5),
      longitude: round(motion.longitude, 5),
      elevation: round(motion.elevation, 0),
      velocity: round(motion.velocity, 0),
      heading: round(motion.heading, 0),
      grade: round(random() * 100, 0),
      fuel_consumption: round(20 + random() * 10, 1),
    },
    diagnostics: {
      fuel_state: round(motion.fuel_state, 2),
      current_load: round(motion.load, 0),
      status: random() < 0.01 ? 1 : 0,
    },
  };
}
