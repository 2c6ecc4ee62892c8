import { timingSafeEqual } from 'node:crypto';
import { buildKeyQuery } from '../db/batching/loader.js';
import type { Database, StoredObject } from '../db/database.js';
import { findAll } from '../db/raw-find.js';
import { isWithin, type KeyLimit } from '../db/reach.js';
import { createFieldErrors, type FieldErrors } from '../errors.js';
import { createTurns } from '../lib/turns.js';
import type { StoredDeadline } from '../objects/receipts/deferred-receipts.js';
import type { SendingDevice } from '../objects/receipts/received-streams.js';
import type { AreAncestorsEnabled } from '../objects/tree/ancestors.js';
import { type DeadlineKind, deadlineKinds } from '../resources/device/status.js';
import { device } from '../resources/index.js';
import { checksumOf } from './checksum.js';
import type { StreamDocument } from './documents.js';
import type { Entry, ParsedStreams } from './parse-streams.js';

/** Streams of one request or publish; all are stored or none. */
export interface Submission extends ParsedStreams {
  account: string;
  /** Streams of devices out of reach are refused as those of unknown ones. */
  limit: KeyLimit | undefined;
  /** The sender; undefined: the owner of each device. */
  user: string | undefined;
  /** Time of receipt in whole epoch seconds. */
  now: number;
  /** A last will is no sign of life: it moves no deadline. */
  isWill?: boolean;
  /** Streams are left out whose device has one of their kind and `at`. */
  skipsRepeated?: boolean;
  /** History: it counts for deadlines and alarms only if it is newer than what is stored. */
  isImport?: boolean;
  /** Nothing is stored. */
  isDryRun?: boolean;
}

type DeadlineMembers = {
  [key in `last_${DeadlineKind}_at` | `${DeadlineKind}_safe_until` | `frequency_${DeadlineKind}`]?: number;
};

export interface StoredDevice extends StoredObject, DeadlineMembers {
  owner: string;
  id_model?: string;
  checksum?: string;
  condition_met_at?: number;
}

/** A device that sends streams. */
export interface Device extends SendingDevice {
  owner: string;
  checksum: string | undefined;
  accepting: boolean;
  deadlines: { readonly [kind in DeadlineKind]: StoredDeadline };
}

/** The fault of a `device` that does not exist in the account. */
export const unknownDevice = 'does not exist';

/** Devices by their identifier. */
export type Devices = Map<string, Device>;

const projection = Object.fromEntries(
  [
    ...['account', 'id_developer', 'ancestors', 'enabled', 'id_model', 'checksum', 'owner', 'condition_met_at'],
    ...deadlineKinds.flatMap((kind) => [`last_${kind}_at`, `${kind}_safe_until`, `frequency_${kind}`]),
  ].map((key) => [key, 1]),
);

function readDeadline(members: DeadlineMembers, kind: DeadlineKind): StoredDeadline {
  const { [`last_${kind}_at` as const]: last_at = 0, [`${kind}_safe_until` as const]: safe_until = 0 } = members;
  return { last_at, safe_until, period_s: (members[`frequency_${kind}`] ?? 0) * 60 };
}

/** Loads the devices that submissions name. */
export async function findDevices(
  db: Database,
  areAncestorsEnabled: AreAncestorsEnabled,
  submissions: readonly Submission[],
): Promise<Devices> {
  const sent = submissions.flatMap(({ account, entries }) => entries.map(({ device }) => ({ account, id: device })));
  const stored = await findAll(db.collection<StoredDevice>(device.plural), {
    filter: buildKeyQuery(sent),
    projection,
  });
  const devices = new Map<string, Device>();
  await Promise.all(
    stored.map(async ({ _id, account, id_developer, ancestors = [], enabled, ...members }) => {
      const accepting = enabled === true && (await areAncestorsEnabled(account, ancestors));
      const { id_model, owner, checksum, condition_met_at } = members;
      const deadlines = { stream: readDeadline(members, 'stream'), status: readDeadline(members, 'status') };
      const device = { _id, account, id_developer, ancestors, id_model, owner, checksum, condition_met_at, accepting };
      devices.set(id_developer, { ...device, deadlines });
    }),
  );
  return devices;
}

/** Compares streams with their devices. @returns the faults of the submissions that have some */
export async function findFaults<Job extends Submission>(
  jobs: readonly Job[],
  devices: Devices,
): Promise<Map<Job, FieldErrors>> {
  const faulty = new Map<Job, FieldErrors>();
  const takeTurns = createTurns();
  for (const job of jobs) {
    for (const [index, entry] of job.entries.entries()) {
      await takeTurns();
      const [field, fault] = faultOf(job, entry, devices.get(entry.device)) ?? [];
      if (field === undefined || fault === undefined) continue;
      const faults = faulty.get(job) ?? createFieldErrors();
      faults[job.fieldOf(index, field)] = fault;
      faulty.set(job, faults);
    }
  }
  return faulty;
}

/** @returns the field that an entry has wrong, and the rule */
function faultOf(
  { account, limit, isImport }: Submission,
  entry: Entry,
  sender: Device | undefined,
): [string, string] | undefined {
  if (sender === undefined || sender.account !== account) return ['device', unknownDevice];
  if (!isWithin(limit, device.plural, sender)) return ['device', unknownDevice];
  if (!sender.accepting) return ['device', 'disabled'];
  // exports have no checksums
  const isUnchecked = isImport === true && entry.checksum === undefined;
  const fault = isUnchecked ? undefined : checksumFault(entry, sender.checksum);
  return fault === undefined ? undefined : ['checksum', fault];
}

function checksumFault({ checksum, data, protocol }: Entry, key: string | undefined): string | undefined {
  if (checksum === undefined) return protocol === 'v3' && key !== undefined ? 'is required' : undefined;
  const matches = timingSafeEqual(Buffer.from(checksum), Buffer.from(checksumOf(data.parse() as object, key)));
  return matches ? undefined : 'does not match the data';
}

/** Returns the devices of data streams. */
export function findSenders(stored: readonly StreamDocument[], devices: Devices): ReadonlySet<Device> {
  return new Set(stored.flatMap(({ _id, _t }) => (_t === 'str' ? (devices.get(_id.device) ?? []) : [])));
}
