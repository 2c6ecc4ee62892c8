import { randomBytes } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import type { mongo } from 'mongoose';
import { createBatcher } from '../db/batching/batcher.js';
import type { StoredNode } from '../db/batching/loader.js';
import type { Database, DatabaseAccess } from '../db/database.js';
import { hasOnlyDuplicates } from '../db/driver-errors.js';
import { type Id, keyOfId } from '../db/ids.js';
import { findAll, findMany, findOne } from '../db/raw-find.js';
import { AppError } from '../errors.js';
import { splitIntoBatches } from '../lib/batches.js';
import { groupBy } from '../lib/group-by.js';
import { createTurns } from '../lib/turns.js';
import { formatLastChange, type NamedEvent } from '../objects/write/last-change.js';
import type { ConfigEntry } from '../resources/device/configs.js';
import { device, deviceconfig, devicestate } from '../resources/index.js';
import type { Values } from '../schema/fields.js';
import { type ChangedState, type ConfigOutcome, type ConfigVersion, type DeviceState, emptyState } from './changes.js';
import { buildConfigEntries } from './config-entries.js';
import { buildDelta } from './delta.js';

export interface StoredState {
  _id: Id;
  /** The device. */
  parent: Id;
  account: string;
  device: string;
  desired: string;
  reported: string;
  desired_version: number;
  reported_version: number;
  desired_at?: number;
  reported_at?: number;
  outcomes?: string;
  configs?: readonly ConfigEntry[];
  revision: string;
  last_change?: string;
}

export type StateOwner = Pick<StoredNode, '_id' | 'account' | 'id_developer'>;

/**
 * Changes the state of a device in one conditional write, durably; concurrent changes share a command, in their order.
 * @param change may be called again @returns the changed state @throws AppError notFound (4041), what `change` throws
 */
export type ChangeState = (owner: StateOwner, change: (state: DeviceState) => ChangedState) => Promise<DeviceState>;

/** Counts changes of states. @param type of the event, or `state.reported` */
export interface StateMetrics {
  changed(type: string, count: number): void;
}

interface Job {
  owner: StateOwner;
  change(state: DeviceState): ChangedState;
  after?: DeviceState;
}

/** The changes of one device that are written together. */
interface Write {
  owner: StateOwner;
  jobs: readonly Job[];
  before: StoredState | undefined;
  revision: string;
  state: DeviceState;
  events: readonly NamedEvent[];
  deployed: readonly ConfigVersion[];
}

/** States have at most 64 KiB: a batch takes 2 MiB at most, and others do not wait long for the next one. */
const max_batch_size = 32;
/** Changes of many devices in a transaction, where no one waits for the next batch. */
const max_bulk_size = 250;
const max_attempts = 20;

/** The states of all devices. */
export const statesOf = (db: DatabaseAccess) => db.collection<StoredState>(devicestate.plural);

/** Loads the state of a device. */
export async function findState(db: Database, parent: Id): Promise<DeviceState> {
  const stored = await findOne(statesOf(db), { parent });
  return stored === undefined ? emptyState : parseState(stored);
}

/** A desired state on its way to its device. */
export interface DesiredMessage {
  device: string;
  /** Identifies the device: one that is made again under its identifier has another key, and versions of its own. */
  key: string;
  version: number;
  /** `{version, desired, delta}` as JSON. */
  json: string;
}

/** Formats the desired state of a device, with the difference to what it has reported. */
export function formatDesired({ parent, device, desired_version, desired, reported }: StoredState): DesiredMessage {
  const [wanted = {}, actual = {}] = [desired, reported].map((side) => JSON.parse(side) as Values);
  const json = JSON.stringify({ version: desired_version, desired: wanted, delta: buildDelta(wanted, actual) });
  return { device, key: keyOfId(parent), version: desired_version, json };
}

/** Parses a stored state. */
export function parseState({ desired, reported, outcomes = '{}', ...stored }: StoredState): DeviceState {
  const { desired_version, reported_version, desired_at, reported_at } = stored;
  return {
    desired: JSON.parse(desired) as Values,
    reported: JSON.parse(reported) as Values,
    desired_version,
    reported_version,
    desired_at,
    reported_at,
    outcomes: new Map(Object.entries(JSON.parse(outcomes) as Record<string, ConfigOutcome>)),
  };
}

/** Creates the writer of a process. */
export function createStateWriter(db: Database, metrics: StateMetrics): ChangeState {
  const submit = createBatcher<Job>((jobs) => commit(db, jobs, metrics), {
    maxBatchSize: max_batch_size,
    // reports of a device are applied in their order
    maxInFlight: 1,
    accountOf: ({ owner: { account } }) => account,
  });
  return async (owner, change) => {
    const job: Job = { owner, change };
    await submit(job);
    return job.after ?? emptyState;
  };
}

async function commit(db: Database, jobs: readonly Job[], metrics: StateMetrics): Promise<ReadonlyMap<Job, Error>> {
  const refused = new Map<Job, Error>();
  let pending = jobs;
  for (let attempt = 0; attempt < max_attempts && pending.length > 0; attempt++)
    pending = await writeOnce(db, pending, refused, metrics);
  const cause = new Error('the state of the device changes all the time');
  for (const job of pending) refused.set(job, new AppError('database', {}, { cause }));
  return refused;
}

/** @returns the jobs whose device others have changed since */
async function writeOnce(
  db: Database,
  jobs: readonly Job[],
  refused: Map<Job, Error>,
  metrics: StateMetrics,
): Promise<readonly Job[]> {
  const writes = await planWrites(db, jobs, refused);
  if (writes.length === 0) return [];
  await setDeployed(db, writes);
  const lost = await findLost(db, writes, await applyWrites(db, writes));
  const applied = writes.filter((write) => !lost.has(write));
  await removeOrphans(db, applied, refused);
  for (const { jobs: done, before, events, state } of applied) {
    for (const job of done) job.after = state;
    for (const { type } of events) metrics.changed(type, 1);
    metrics.changed('state.reported', state.reported_version - (before?.reported_version ?? 0));
  }
  return [...lost].flatMap((write) => write.jobs);
}

/** Changes the states of many devices in a transaction. @returns how many @throws what `change` throws unless `skipsInvalid` */
export async function updateStates(
  db: Database,
  owners: readonly StateOwner[],
  change: (state: DeviceState, owner: StateOwner) => ChangedState,
  { session, skipsInvalid }: { session: mongo.ClientSession; skipsInvalid: boolean },
): Promise<number> {
  let changed = 0;
  for (const batch of splitIntoBatches(owners, max_bulk_size)) {
    const refused = new Map<Job, Error>();
    const jobs = batch.map((owner): Job => ({ owner, change: (state) => change(state, owner) }));
    const writes = await planWrites(db, jobs, refused, session);
    for (const error of skipsInvalid ? [] : refused.values()) throw error;
    const statements = writes.map((write) => statementOf(write, db.newId()));
    if (statements.length > 0) await statesOf(db).bulkWrite(statements, { session, ordered: false });
    changed += writes.length;
  }
  return changed;
}

async function planWrites(
  db: Database,
  jobs: readonly Job[],
  refused: Map<Job, Error>,
  session?: mongo.ClientSession,
): Promise<readonly Write[]> {
  const byDevice = groupBy(jobs, ({ owner }) => keyOfId(owner._id));
  const ids = [...byDevice.values()].flatMap(([job]) => job?.owner._id ?? []);
  const filter = { parent: { $in: ids } };
  const states = await (session === undefined
    ? findAll(statesOf(db), { filter })
    : findMany(statesOf(db), filter, { session }));
  const stored = new Map(states.map((state) => [keyOfId(state.parent), state]));
  const writes: Write[] = [];
  const takeTurns = createTurns();
  for (const [key, ofDevice] of byDevice) {
    await takeTurns();
    const write = planWrite(ofDevice, stored.get(key), refused);
    if (write !== undefined) writes.push(write);
  }
  return writes;
}

function planWrite(jobs: readonly Job[], before: StoredState | undefined, refused: Map<Job, Error>): Write | undefined {
  let state = before === undefined ? emptyState : parseState(before);
  const events: NamedEvent[] = [];
  const deployed: ConfigVersion[] = [];
  const accepted: Job[] = [];
  for (const job of jobs) {
    try {
      const change = job.change(state);
      state = change.state;
      events.push(...change.events);
      deployed.push(...change.deployed);
      accepted.push(job);
    } catch (error) {
      refused.set(job, error as Error);
    }
  }
  const [first] = accepted;
  if (first === undefined) return undefined;
  const revision = randomBytes(9).toString('base64');
  return { owner: first.owner, jobs: accepted, before, revision, state, events, deployed };
}

/** Before the state says so: a device that gets no answer reports again. */
async function setDeployed(db: Database, writes: readonly Write[]): Promise<void> {
  const updates = writes.flatMap(({ owner, deployed, state }) =>
    deployed.map(({ name, version }) => ({
      updateOne: {
        filter: { parent: owner._id, name, version },
        update: { $set: { date_deployed: state.reported_at } },
      },
    })),
  );
  if (updates.length > 0) await db.collection(deviceconfig.plural).bulkWrite(updates, { ordered: false });
}

/** @returns the number of writes that were applied */
async function applyWrites(db: Database, writes: readonly Write[]): Promise<number> {
  const statements = writes.map((write) => statementOf(write, db.newId()));
  const { matchedCount, upsertedCount } = await statesOf(db)
    .bulkWrite(statements, { ordered: false })
    .catch((error: unknown) => {
      // another process has created the state of a device
      if (!hasOnlyDuplicates(error)) throw error;
      return error.result;
    });
  return matchedCount + upsertedCount;
}

function statementOf(
  { owner, before, revision, state, events }: Write,
  newId: Id,
): mongo.AnyBulkWriteOperation<StoredState> {
  const { _id: parent, account, id_developer } = owner;
  const [desired, reported] = [JSON.stringify(state.desired), JSON.stringify(state.reported)];
  const { desired_version, reported_version, desired_at, reported_at, outcomes } = state;
  const configs = buildConfigEntries(state);
  const set = {
    ...(desired !== before?.desired && { desired }),
    ...(reported !== before?.reported && { reported }),
    ...{ desired_version, reported_version, revision },
    ...(desired_at !== undefined && { desired_at }),
    ...(reported_at !== undefined && { reported_at }),
    ...(configs.length > 0 && !isDeepStrictEqual(configs, before?.configs) && { configs }),
    ...(outcomes.size > 0 && { outcomes: JSON.stringify(Object.fromEntries(outcomes)) }),
    ...(events.length > 0 && { last_change: formatLastChange({ events }) }),
  };
  if (before === undefined) {
    const filter = { parent, revision: { $exists: false } };
    const update = { $set: set, $setOnInsert: { _id: newId, account, device: id_developer } };
    return { updateOne: { filter, update, upsert: true } };
  }
  const unset = {
    ...(before.outcomes !== undefined && outcomes.size === 0 && { outcomes: 1 as const }),
    ...(before.configs !== undefined && configs.length === 0 && { configs: 1 as const }),
  };
  const update = { $set: set, ...(Object.keys(unset).length > 0 && { $unset: unset }) };
  return { updateOne: { filter: { parent, revision: before.revision }, update } };
}

/**
 * A bulk write reports how many were applied, not which: the revision shows it, unless another process was faster still.
 * @throws AppError database (5031) if the outcome is unknown
 */
async function findLost(db: Database, writes: readonly Write[], applied: number): Promise<ReadonlySet<Write>> {
  if (applied === writes.length) return new Set();
  const filter = { parent: { $in: writes.map(({ owner }) => owner._id) } };
  const stored = await findAll(statesOf(db), { filter, projection: { revision: 1 } });
  const revisions = new Set(stored.map(({ revision }) => revision));
  const lost = new Set(writes.filter(({ revision }) => !revisions.has(revision)));
  if (lost.size === writes.length - applied) return lost;
  throw new AppError('database', {}, { cause: new Error('the outcome of a batched change is unknown') });
}

/** Deletes states just created of devices that were deleted since; without an earlier one nothing else shows it. */
async function removeOrphans(db: Database, writes: readonly Write[], refused: Map<Job, Error>): Promise<void> {
  const created = writes.filter(({ before }) => before === undefined);
  if (created.length === 0) return;
  const filter = { _id: { $in: created.map(({ owner }) => owner._id) } };
  const devices = await findAll(db.collection(device.plural), { filter, projection: { _id: 1 } });
  const present = new Set(devices.map(({ _id }) => keyOfId(_id)));
  const orphans = created.filter(({ owner }) => !present.has(keyOfId(owner._id)));
  if (orphans.length === 0) return;
  await statesOf(db).deleteMany({ parent: { $in: orphans.map(({ owner }) => owner._id) } });
  for (const { jobs } of orphans) for (const job of jobs) refused.set(job, new AppError('notFound'));
}
