import mongoose, { type mongo } from 'mongoose';
import { type Collection, type Database, read_limit_ms, type StoredDocument } from '../db/database.js';
import { insertIntoFreeSlot } from '../db/free-slot.js';
import { type Id, placeBehind } from '../db/ids.js';
import { OpaqueJson, toDriverValues } from '../db/opaque-json.js';
import { findOne, findRaw, type RawQuery, showOne } from '../db/raw-find.js';
import { AppError } from '../errors.js';
import type { OperationContext } from '../objects/context.js';
import type { Bson } from '../objects/page.js';
import { assertExists, assertWithinReach } from '../objects/resources.js';
import { insertUnderParent } from '../objects/tree/removed-nodes.js';
import { formatLastChange, type TimedAuthor } from '../objects/write/last-change.js';
import { type CommandStatus, commandOrigins, type LaterStatus } from '../resources/command.js';
import { command, device } from '../resources/index.js';
import type { Values } from '../schema/fields.js';
import { getId, getString } from '../serialize/bson.js';
import { toPlainJson } from '../serialize/plain-json.js';

export interface StoredCommand extends StoredDocument {
  account: string;
  parent: Id;
  device: string;
  /** Text of `_id`. */
  id: string;
  name: string;
  status: CommandStatus;
  expires_at: number;
  slot?: number;
}

/** The part of a command that its events name. */
export type CommandRef = Pick<StoredCommand, '_id' | 'id' | 'name'>;

/** Limits the open commands of a device: each takes one of 100 slots, and no two take the same one. */
export const commandSlots = {
  key: { parent: 1, slot: 1 },
  unique: true,
  partialFilterExpression: { slot: { $exists: true } },
} as const;

/** Indexes that find open commands by the time of their expiry, and finished ones by that of their end. */
export const commandTimes = [
  { key: { expires_at: 1 }, partialFilterExpression: { slot: { $exists: true } } },
  { key: { finished_at: 1 }, partialFilterExpression: { finished_at: { $exists: true } } },
] as const;

export const isOpen = { slot: { $exists: true } } as const;

/** The commands of all accounts. */
export function commandsOf(db: Database): Collection<StoredCommand> {
  return db.collection(command.plural);
}

/**
 * Creates the function that builds the same new command for any device. Commands are delivered in the order of their ids, so
 * that of a new one is behind those of the open ones, whatever the clocks say.
 */
export function createBuilder(ctx: OperationContext, { name, data, expires_in }: Values) {
  const { store, account, user, now, request_id } = ctx;
  const shared = {
    ...toDriverValues(command.fields, { name, ...(data !== undefined && { data }) }),
    name: String(name),
    status: 'queued',
    expires_at: now + Number(expires_in),
    owner: user,
    updater: user,
    created_at: now,
    updated_at: now,
    last_request_id: request_id,
  } as const;
  return (parent: Id, device_id: string, slot: number, open: readonly Id[]): StoredCommand => {
    const _id = placeBehind(store.db.newId(), open);
    return { _id, account, parent, device: device_id, id: String(_id), slot, ...shared };
  };
}

/** The limit of its slots. */
export const limited = 'open commands of a device';

/**
 * Queues a command. @returns its id
 * @throws AppError notFound (4041) without the device, invalid (4003) beyond 100 open ones
 */
export async function createCommand(ctx: OperationContext, id: string, values: Values): Promise<string> {
  const { _id: parent } = await assertExists(ctx, device, id);
  const build = createBuilder(ctx, values);
  return insertIntoFreeSlot(commandsOf(ctx.store.db), { parent, ...isOpen }, limited, async (slot, open) => {
    const document = build(parent, id, slot, open);
    await insertUnderParent(ctx, command.plural, document, device.plural);
    return document.id;
  });
}

/** Finds a command of a device. @throws AppError notFound (4041) */
export async function findCommand(
  db: Database,
  account: string,
  device_id: string,
  id: string,
): Promise<StoredCommand> {
  const projection = { id: 1, name: 1, status: 1 };
  const stored = await findOne(commandsOf(db), buildFilter(account, device_id, id), { projection });
  if (stored === undefined) throw new AppError('notFound');
  return stored;
}

/** Loads a command of a device as it is shown. @throws AppError notFound (4041) */
export async function loadCommand(ctx: OperationContext, device_id: string, id: string): Promise<Bson> {
  await assertWithinReach(ctx, device, device_id);
  const filter = buildFilter(ctx.account, device_id, id);
  return showOne(ctx.store.db.collection(command.plural), filter);
}

const idFormat = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** @throws AppError notFound (4041) for a text that is no id */
function buildFilter(account: string, device_id: string, id: string) {
  if (!idFormat.test(id)) throw new AppError('notFound');
  return { _id: new mongoose.mongo.UUID(id), account, device: device_id };
}

/** A command as a device gets it. */
export interface DeliveredCommand {
  ref: CommandRef;
  status: CommandStatus;
  /** `{id, name, data?, expires_at}` as JSON. */
  json: string;
}

/** Reads the open commands that match and have not expired. @param now epoch seconds */
export function readOpenCommands(
  db: Database,
  now: number,
  { filter, ...query }: RawQuery,
): AsyncGenerator<readonly Bson[]> {
  const isDeliverable = { ...isOpen, expires_at: { $gt: Math.floor(now) } };
  // without a snapshot a scan that pauses can see a later command, and miss an earlier one in a slot that it has passed
  const limits = { readConcern: { level: 'snapshot' }, maxTimeMS: read_limit_ms } as const;
  return findRaw(db.collection(command.plural), { ...query, ...limits, filter: { ...filter, ...isDeliverable } })
    .batches;
}

/** Finds the open commands of a device that have not expired, oldest first. @param now epoch seconds */
export async function findOpenCommands(db: Database, parent: Id, now: number): Promise<DeliveredCommand[]> {
  const commands: DeliveredCommand[] = [];
  for await (const batch of readOpenCommands(db, now, { filter: { parent } })) commands.push(...batch.map(toDelivered));
  return commands.toSorted((first, other) => (first.ref.id < other.ref.id ? -1 : 1));
}

/** Refers to a stored command. */
export function toRef(bson: Bson): CommandRef {
  return { _id: getId(bson, '_id'), id: getString(bson, 'id') ?? '', name: getString(bson, 'name') ?? '' };
}

/** Formats a stored command as its device gets it. */
export function toDelivered(bson: Bson): DeliveredCommand {
  const { id, name, data, expires_at, status } = toPlainJson(bson);
  return {
    ref: toRef(bson),
    status: status as CommandStatus,
    json: JSON.stringify({ id, name, data, expires_at }),
  };
}

/** Builds the transition of a command; without effect if it has left the states that the new one is entered from. */
function buildTransition(
  { _id, id, name }: CommandRef,
  status: LaterStatus,
  { user, request_id, now }: TimedAuthor,
  result?: unknown,
) {
  const event = { type: `command.${status}`, user, request_id, data: { id, name } };
  const set = {
    status,
    updated_at: now,
    ...(user !== undefined && { updater: user }),
    ...(status === 'sent' ? { sent_at: now } : { finished_at: now }),
    ...(result !== undefined && { result: new OpaqueJson(result) }),
    last_change: formatLastChange({ events: [event] }),
  };
  return {
    filter: { _id, status: { $in: [...commandOrigins[status]] } },
    update: { $set: set, ...(status !== 'sent' && { $unset: { slot: 1 } }) } as mongo.UpdateFilter<StoredCommand>,
  };
}

/** Takes commands to a state, each at most once. @returns how many were taken there */
export async function applyTransitions(
  db: Database,
  commands: readonly CommandRef[],
  status: LaterStatus,
  author: TimedAuthor,
): Promise<number> {
  if (commands.length === 0) return 0;
  const writes = commands.map((each) => ({ updateOne: buildTransition(each, status, author) }));
  return (await commandsOf(db).bulkWrite(writes, { ordered: false })).modifiedCount;
}

/** Takes a command to its end. @returns whether this call did @throws AppError invalid (4003) if it ended otherwise */
export async function finishCommand(
  db: Database,
  stored: CommandRef,
  { status, result }: { status: Exclude<LaterStatus, 'sent'>; result?: unknown },
  author: TimedAuthor,
): Promise<boolean> {
  const { filter, update } = buildTransition(stored, status, author, result);
  if ((await commandsOf(db).updateOne(filter, update)).modifiedCount === 1) return true;
  const current = await findOne(commandsOf(db), { _id: stored._id }, { projection: { status: 1 } });
  if (current === undefined) throw new AppError('notFound');
  if (current.status !== status || status === 'cancelled')
    throw new AppError('invalid', { status: `is ${current.status}` });
  return false;
}
