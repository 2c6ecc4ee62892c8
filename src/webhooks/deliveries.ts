import type { Collection, Database } from '../db/database.js';
import type { Id } from '../db/ids.js';
import { findMany, findOne } from '../db/raw-find.js';
import { eventsOf } from '../events/store.js';
import { toLiterals } from '../objects/tree/journal.js';
import type { StoredEvent } from '../resources/event.js';
import { delivery, webhookretry, webhookstate } from '../resources/index.js';
import type { TextMessage } from './message.js';
import type { StoredWebhook } from './store.js';

/** Attempts kept for each webhook. */
const max_deliveries = 1000;

/** The result of one attempt (reference/webhooks.md#deliveries). */
export interface Attempt {
  event: string;
  type: string;
  /** Events of a digest. */
  count?: number;
  /** Epoch seconds with milliseconds. */
  at: number;
  attempt: number;
  status?: number;
  error?: string;
  took_ms: number;
  next_at?: number;
}

/** Several events in one message. */
export interface Digest {
  message: TextMessage;
  count: number;
}

/** Content of one delivery: an event, or a digest whose first event it is. */
export interface Parcel {
  event: StoredEvent;
  digest?: Digest | undefined;
  /** The only addresses of a mail; absent: all of the webhook. */
  addresses?: readonly string[] | undefined;
}

/** The answer of a receiver, and the addresses that are left; there is no `error` if it took the parcel. */
export interface AttemptOutcome extends Pick<Parcel, 'addresses'>, Pick<Attempt, 'status' | 'error'> {
  /** At least one address has got it, although there is an error. */
  isDelivered?: boolean;
}

/** An attempt, and what is left to do after it. */
export interface SentParcel extends Omit<AttemptOutcome, 'status' | 'error'> {
  attempt: Attempt;
}

/** A parcel that is sent again at `next_at`. */
export interface Retry extends Pick<Parcel, 'digest' | 'addresses'> {
  _id: Id;
  run: string;
  event: string;
  /** Attempts so far. */
  attempts: number;
  next_at: number;
}

interface WebhookState {
  _id: Id;
  account: string;
  webhook: string;
  parent: Id;
  run?: string;
  cursor?: string;
  told_at?: number;
  attempts: number;
  failing_since?: number;
}

type Target = Pick<StoredWebhook, '_id' | 'account' | 'id_developer'>;

function statesOf(db: Database): Collection<WebhookState> {
  return db.collection(webhookstate.plural);
}

function retriesOf(db: Database): Collection<Retry> {
  return db.collection(webhookretry.plural);
}

/** The fields by which a deletion of the webhook finds what belongs to it. */
function ownerOf({ _id, account, id_developer }: Target) {
  return { account, webhook: id_developer, parent: _id };
}

/** Opens the state of a run, a new one at the end of the log of its beginning. */
export async function openRun(
  db: Database,
  target: StoredWebhook,
): Promise<Pick<WebhookState, 'failing_since' | 'told_at'> & { cursor: string }> {
  const { _id, run, log_from } = target;
  const owner = { ...ownerOf(target), attempts: 0 };
  await statesOf(db).updateOne({ _id }, { $setOnInsert: owner }, { upsert: true });
  await statesOf(db).updateOne(
    { _id, run: { $ne: run } },
    { $set: { run, cursor: log_from }, $unset: { failing_since: 1, told_at: 1 } },
  );
  const state = await findOne(statesOf(db), { _id });
  return { cursor: log_from, ...state };
}

/** Saves the event up to which a run has made the first attempts. */
export async function saveCursor(db: Database, { _id, run }: StoredWebhook, cursor: string): Promise<void> {
  await statesOf(db).updateOne({ _id, run }, { $set: { cursor } });
}

/** A first attempt: the last event that it was about, and its time. */
export type LogStep = Required<Pick<WebhookState, 'cursor' | 'told_at'>>;

/**
 * Keeps an attempt in the list of the last 1,000.
 * @param progress of a run, with its step after a first attempt
 * @returns the time of the first failure since the last success; undefined after a success
 */
export async function recordAttempt(
  db: Database,
  target: Target,
  { attempt, isDelivered = attempt.error === undefined }: SentParcel,
  { digest }: Parcel,
  progress?: { run: string; step?: LogStep | undefined },
): Promise<number | undefined> {
  const owner = ownerOf(target);
  // any success counts, and the failures of a run
  const failing = isDelivered ? '$$REMOVE' : progress && { $ifNull: ['$failing_since', attempt.at] };
  const set = {
    ...toLiterals(owner),
    attempts: { $add: [{ $ifNull: ['$attempts', 0] }, 1] },
    ...(failing !== undefined && { failing_since: failing }),
    ...progress?.step,
  };
  const filter = { _id: target._id, ...(progress && { run: progress.run }) };
  const options = { returnDocument: 'after', upsert: progress === undefined } as const;
  const state = await statesOf(db).findOneAndUpdate(filter, [{ $set: set }], options);
  if (state === null) return undefined;
  const slot = state.attempts % max_deliveries;
  await db
    .collection(delivery.plural)
    .replaceOne(
      { parent: target._id, slot },
      { ...owner, ...attempt, ...(digest && { message: digest.message }), seq: state.attempts, slot },
      { upsert: true, writeConcern: { w: 1 } },
    );
  return state.failing_since;
}

/** Schedules another attempt of a run, durably. */
export async function scheduleRetry(
  db: Database,
  target: StoredWebhook,
  { event, attempt, next_at }: Attempt & { next_at: number },
  { digest, addresses }: Pick<Parcel, 'digest' | 'addresses'>,
): Promise<void> {
  const set = { attempts: attempt, next_at, ...(digest && { digest }), ...(addresses && { addresses }) };
  await retriesOf(db).updateOne(
    { run: target.run, event },
    { $set: set, $setOnInsert: { _id: db.newId(), ...ownerOf(target) } },
    { upsert: true },
  );
}

/** Ends the attempts to send an event in a run. */
export async function removeRetry(db: Database, run: string, event: string): Promise<void> {
  await retriesOf(db).deleteOne({ run, event });
}

/** Deletes the retries of a run that has ended, or of all but some. */
export async function removeRetriesOf(db: Database, run: string | { $nin: readonly string[] }): Promise<void> {
  await retriesOf(db).deleteMany({ run });
}

/** Finds the first retries of a run, the earliest first. */
export function findNextRetries(db: Database, run: string, limit: number): Promise<Retry[]> {
  return findMany(retriesOf(db), { run }, { sort: { next_at: 1 }, limit });
}

/** @returns the first event that waits for a retry in any run */
export async function findOldestRetry(db: Database): Promise<string | undefined> {
  const options = { sort: { event: 1 }, projection: { event: 1 } } as const;
  return (await findOne(retriesOf(db), {}, options))?.event;
}

/** @returns what the list of the last attempts knows of an event: the number of its attempts, and its digest */
export async function findLastAttempt(
  db: Database,
  { _id }: Target,
  eventId: string,
): Promise<{ attempt: number; digest?: Digest } | undefined> {
  const projection = { attempt: 1, count: 1, message: 1 };
  const deliveries = db.collection<Digest & { parent: Id; event: string; attempt: number }>(delivery.plural);
  const last = await findOne(deliveries, { parent: _id, event: eventId }, { sort: { seq: -1 }, projection });
  if (last === undefined) return undefined;
  const { attempt, message, count } = last;
  return { attempt, ...(message !== undefined && { digest: { message, count } }) };
}

/** Reads the events of an account after `cursor`, in order. */
export function readEventsAfter(db: Database, account: string, cursor: string, limit: number): Promise<StoredEvent[]> {
  return findMany(eventsOf(db), { account, _id: { $gt: cursor } }, { sort: { _id: 1 }, limit });
}

const max_tail_events = 10_000;

/** @returns the accounts that have events after `cursor`, and the last event */
export async function findActiveAccounts(
  db: Database,
  cursor: string,
): Promise<{ accounts: ReadonlySet<string>; last: string }> {
  const options = { sort: { _id: 1 }, projection: { account: 1 }, limit: max_tail_events } as const;
  const events = await findMany(eventsOf(db), { _id: { $gt: cursor } }, options);
  return { accounts: new Set(events.map(({ account }) => account)), last: events.at(-1)?._id ?? cursor };
}
