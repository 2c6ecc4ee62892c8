import type { mongo } from 'mongoose';
import { type BatchLoader, createLoader } from '../db/batching/loader.js';
import { openUpdateBatcher } from '../db/batching/update.js';
import { type Collection, type Database, read_limit_ms, type StoredDocument } from '../db/database.js';
import { isDuplicate, taken } from '../db/driver-errors.js';
import type { Id } from '../db/ids.js';
import { toDriverValues } from '../db/opaque-json.js';
import { planQuery, type QueryPlan } from '../db/query-plan.js';
import { findRaw } from '../db/raw-find.js';
import { AppError, type FieldErrors, newFieldErrors, throwIfAny } from '../errors.js';
import { device, statusConditions, statuses } from '../resources/device/index.js';
import type { Values } from '../schema/fields.js';
import type { ListedType, Resource, StoredContext } from '../schema/resource.js';
import type { ListRequest } from '../schema/validation.js';
import { getDocument, getString } from '../serialize/bson.js';
import { toPlainJson } from '../serialize/printer.js';
import { removeTree, replayRemovals } from './cascade-delete.js';
import { refreshBounds } from './device-deadlines.js';

/** Who acts: the account whose data it is, and the user who becomes owner or updater. */
export interface Actor {
  account: string;
  user: string;
}

/** A stored document as BSON bytes, as `printer.ts` takes it. */
export type Bson = Uint8Array;

const raw = { raw: true, maxTimeMS: read_limit_ms } as const;

function together(db: Database, plural: string): BatchLoader {
  return db.once(`together ${plural}`, () => createLoader(db.collection(plural), read_limit_ms));
}

/**
 * Creates a resource (§4, contract 5). A parent that goes away meanwhile takes the new object along.
 * @returns its id_developer @throws AppError invalid (4003)
 */
export async function createResource(
  db: Database,
  resource: Resource,
  actor: Actor,
  values: Values,
  now: number,
): Promise<string> {
  const found = await findReferences(db, resource, actor.account, values);
  const { set } = resource.toStored(values, { now, creating: true });
  const document: StoredDocument = {
    _id: db.newId(),
    account: actor.account,
    id_developer: '',
    ...toDriverValues(resource.fields, set),
    owner: actor.user,
    updater: actor.user,
    created_at: now,
    updated_at: now,
    version: 0,
  };
  const parent = parentOf(resource, found);
  if (parent !== undefined) document.parent = parent;
  const id = resource.uniqueNames
    ? await insertUnique(db, resource, document)
    : await insertNumbered(db, resource, document);
  const gone = await missingReferences(db, resource, found);
  if (Object.keys(gone).length > 0) {
    // the removal of the parent may have taken it already
    await removeTree(db, resource, actor.account, id).catch(ignoreNotFound);
    throw new AppError('invalid', gone);
  }
  return id;
}

async function insertUnique(db: Database, resource: Resource, document: StoredDocument): Promise<string> {
  document.id_developer = `${document.name}@${document.account}`;
  await together(db, resource.plural).insert(document);
  return String(document.id_developer);
}

/** Takes `name@account`, or the next free of `name-2@account`, …: the unique index decides who gets it (contract 3). */
async function insertNumbered(db: Database, resource: Resource, document: StoredDocument): Promise<string> {
  for (let id = `${document.name}@${document.account}`; ; id = await nextFreeIdentifier(db, resource, document)) {
    if (db.pendingIdentifiers.has(id)) continue;
    db.pendingIdentifiers.add(id);
    document.id_developer = id;
    try {
      await together(db, resource.plural).insert(document);
      return id;
    } catch (error) {
      if (!isDuplicate(error)) throw error;
    } finally {
      db.pendingIdentifiers.delete(id);
    }
  }
}

async function nextFreeIdentifier(
  { pendingIdentifiers, collection }: Database,
  resource: Resource,
  { account, name }: Values,
): Promise<string> {
  for (let from = 2, count = 64; ; from += count, count = Math.min(4 * count, 4096)) {
    const candidates = Array.from({ length: count }, (_, index) => `${name}-${from + index}@${account}`);
    const present = await collection(resource.plural)
      .find(
        { account, id_developer: { $in: candidates } },
        { projection: { _id: 0, id_developer: 1 }, maxTimeMS: read_limit_ms },
      )
      .toArray();
    const used = new Set(present.map((found) => found.id_developer));
    const free = candidates.find((candidate) => !used.has(candidate) && !pendingIdentifiers.has(candidate));
    if (free !== undefined) return free;
  }
}

type References = ReadonlyMap<string, Id>;

/** The internal ids of what `values` refer to. @throws AppError invalid (4003), with a name that is taken besides */
async function findReferences(
  db: Database,
  resource: Resource,
  account: string,
  values: Values,
  id?: string,
): Promise<References> {
  const found = new Map<string, Id>();
  const faults = newFieldErrors();
  await Promise.all(
    resource.references.map(async (field) => {
      const named = values[field];
      if (typeof named !== 'string') return;
      const target = await together(db, resource.fields[field]?.references?.plural ?? '').idOf(account, named);
      if (target === undefined) faults[field] = 'does not exist';
      else found.set(field, target);
    }),
  );
  if (Object.keys(faults).length > 0) Object.assign(faults, await nameFault(db, resource, account, values, id));
  throwIfAny('invalid', faults);
  return found;
}

/** Asked only where something else is wrong already, to tell all at once; the unique index is what decides. */
async function nameFault(
  db: Database,
  resource: Resource,
  account: string,
  values: Values,
  id = '',
): Promise<FieldErrors> {
  if (!resource.uniqueNames || typeof values.name !== 'string') return {};
  const query = { account, name: values.name, id_developer: { $ne: id } };
  const other = await db
    .collection(resource.plural)
    .findOne(query, { projection: { _id: 1 }, maxTimeMS: read_limit_ms });
  return other === null ? {} : { name: taken };
}

async function missingReferences(db: Database, resource: Resource, found: References): Promise<FieldErrors> {
  const faults = newFieldErrors();
  await Promise.all(
    [...found].map(async ([field, _id]) => {
      const there = await together(db, resource.fields[field]?.references?.plural ?? '').exists(_id);
      if (!there) faults[field] = 'does not exist';
    }),
  );
  return faults;
}

function parentOf(resource: Resource, found: References): Id | undefined {
  for (const field of resource.parents) {
    const parent = found.get(field);
    if (parent !== undefined) return parent;
  }
  return undefined;
}

/** One object of the account, beneath `{field: identifier}` where that is given. @throws AppError notFound (4041) */
export async function showResource(
  db: Database,
  plural: string,
  account: string,
  id: string,
  within: Readonly<Record<string, string>> = {},
): Promise<Bson> {
  const document = await together(db, plural).find(account, id);
  if (document === undefined) throw new AppError('notFound');
  for (const [field, upper] of Object.entries(within)) {
    if (getString(document, field) !== upper) throw new AppError('notFound');
  }
  return document;
}

/** @throws AppError notFound (4041) unless the account has the resource */
export async function mustExist(db: Database, resource: Resource, account: string, id: string): Promise<Id> {
  const found = await together(db, resource.plural).idOf(account, id);
  if (found === undefined) throw new AppError('notFound');
  return found;
}

/** A page of a list: `batches` yields stored documents as they come from the database, the first batch at once. */
export interface Page {
  total_documents: number;
  batches: AsyncIterable<readonly Bson[]>;
}

/**
 * One page and the exact total (contract 6). The database is asked to count only where the page does not show the total.
 * @param within narrows the list to the children of a parent: `{field: identifier}`
 */
export async function listResources(
  db: Database,
  listed: ListedType,
  account: string,
  request: ListRequest,
  within: Values = {},
): Promise<Page> {
  const collection = db.collection(listed.plural);
  const plan = planQuery(listed, account, request, within);
  const { filter, sort } = plan;
  if (listed === device && (request.params.status !== undefined || request.sort.key === 'status'))
    await refreshBounds(db, account, request.now);
  if (request.sort.key === 'status') return listByStatus(collection, filter, request);
  const { max, offset } = request;
  const count = () => collection.countDocuments(filter, readOptions(plan.hint));
  const counted = plan.scanIndex && (await count());
  const walks = counted !== undefined && (await keepsMostOfList(db, listed, account, plan, counted));
  const projection = Object.fromEntries(listed.omittedFromLists.map((path) => [path, 0]));
  const options = { ...readOptions(walks ? plan.scanIndex : plan.hint), projection, sort };
  const cursor = findRaw(collection, { filter, ...options, skip: offset, limit: max });
  const { batches } = cursor;
  const first = await batches.next();
  const page = first.done === true ? [] : first.value;
  const whole = page.length < max && cursor.exhausted;
  if (whole && (page.length > 0 || offset === 0)) {
    return { total_documents: offset + page.length, batches: prepend(page, batches) };
  }
  // what is always listed within something comes and goes faster than its log is read
  const unfiltered = listed.parentField === undefined && Object.keys(request.filter).length === 0;
  const total_documents = unfiltered
    ? await db.totals.count(listed.plural, { account, ...within }, readOptions(plan.hint))
    : (counted ?? (await count()));
  return { total_documents, batches: prepend(page, batches) };
}

function readOptions(hint: QueryPlan['hint']): { hint?: mongo.Hint; maxTimeMS: number } {
  return { ...(hint && { hint }), maxTimeMS: read_limit_ms };
}

const sort_threshold = 5000;

/**
 * Whether a filter lets most of a list through. Then the list is walked in its order, which costs by what is left out;
 * else what matches is sorted, which costs by its number.
 */
async function keepsMostOfList(
  db: Database,
  { plural }: ListedType,
  account: string,
  { scanIndex }: QueryPlan,
  matching: number,
): Promise<boolean> {
  if (matching <= sort_threshold) return false;
  const all = await db.totals.count(plural, { account }, readOptions(scanIndex));
  return all - matching < matching / 2;
}

async function* prepend(page: readonly Bson[], rest: AsyncIterable<readonly Bson[]>): AsyncIterable<readonly Bson[]> {
  if (page.length > 0) yield page;
  yield* rest;
}

/** The status is not stored: each is a range of deadlines, and in their order the ranges make the sorted list. */
async function listByStatus(collection: Collection, filter: object, request: ListRequest): Promise<Page> {
  const ordered = statuses.toSorted();
  if (request.sort.direction === -1) ordered.reverse();
  const filters = ordered.map((status) => ({ $and: [filter, statusConditions(status, request.now)] }));
  const counts = await Promise.all(filters.map((one) => collection.countDocuments(one, { maxTimeMS: read_limit_ms })));
  const sort = { _id: request.sort.direction };
  async function* batches(): AsyncGenerator<readonly Bson[]> {
    let { max, offset } = request;
    for (const [index, count] of counts.entries()) {
      const limit = Math.min(max, count - offset);
      if (limit > 0)
        yield* findRaw(collection, {
          filter: filters[index] ?? {},
          sort,
          skip: offset,
          limit,
          maxTimeMS: read_limit_ms,
        }).batches;
      max -= Math.max(0, limit);
      offset = Math.max(0, offset - count);
      if (max === 0) return;
    }
  }
  return { total_documents: counts.reduce((sum, count) => sum + count, 0), batches: batches() };
}

const attempts = 20;

/**
 * Changes a resource in one conditional write (contract 5): what `values` give, `null` takes a field away.
 * @param accepts the versions that may be changed; whichever is stored where undefined @returns the changed document
 * @throws AppError notFound (4041), invalid (4003) for what the database knows, conflict (4005), in this order
 */
export async function updateResource(
  db: Database,
  resource: Resource,
  actor: Actor,
  id: string,
  values: Values,
  accepts: readonly number[] | undefined,
  now: number,
): Promise<Bson> {
  const dependent = Object.keys(values).some((field) => resource.readModifyWrite.has(field));
  if (!dependent) {
    const packed = resource.toStored(values, { now });
    const versions = accepts === undefined ? {} : { version: { $in: accepts } };
    const changed = await write(db, resource, actor, id, versions, packed, now);
    if (changed !== undefined) return changed;
    const stored = await read(db, resource.plural, actor.account, id);
    throwIfAny('invalid', await nameFault(db, resource, actor.account, values, id));
    throw conflict(resource, Number(stored.version));
  }
  let version = 0;
  for (let attempt = 0; attempt < attempts; attempt++) {
    const stored = await read(db, resource.plural, actor.account, id);
    version = Number(stored.version);
    const found = await findReferences(db, resource, actor.account, values, id);
    const known: StoredContext = { now, stored, linked: await linkedObjects(db, resource, actor.account, stored) };
    const { set, unset, faults, precondition = {} } = resource.toStored(values, known);
    const left = otherParents(resource, values, stored, faults);
    if (Object.keys(faults).length > 0) Object.assign(faults, await nameFault(db, resource, actor.account, values, id));
    throwIfAny('invalid', faults);
    if (accepts !== undefined && !accepts.includes(version)) break;
    const parent = parentOf(resource, found);
    const moved = parent === undefined ? set : { ...set, parent };
    const change = { set: moved, unset: [...unset, ...left] };
    const changed = await write(db, resource, actor, id, { version, ...precondition }, change, now);
    if (changed === undefined) continue;
    const gone = await missingReferences(db, resource, found);
    if (Object.keys(gone).length === 0) return changed;
    if (!resource.parents.some((field) => field in gone)) {
      // what it mentions went meanwhile, which has to take effect here too
      await replayRemovals(db, [...found.values()]);
      return showResource(db, resource.plural, actor.account, id);
    }
    // it was moved beneath something that is being removed, and so goes with it
    await removeTree(db, resource, actor.account, id);
    throw new AppError('notFound');
  }
  throwIfAny('invalid', await nameFault(db, resource, actor.account, values, id));
  throw conflict(resource, version);
}

/** Applies a change where `condition` holds. @returns undefined where it does not, with nothing written */
async function write(
  db: Database,
  { plural, name, fields }: Resource,
  { account, user }: Actor,
  id: string,
  condition: Values,
  { set, unset }: { set: Values; unset: readonly string[] },
  now: number,
): Promise<Bson | undefined> {
  const update = {
    $set: { ...toDriverValues(fields, set), updater: user, updated_at: now },
    $inc: { version: 1 },
    ...(unset.length > 0 && { $unset: Object.fromEntries(unset.map((path) => [path, 1])) }),
  };
  const apply = db.once(`changes ${plural}`, () => openUpdateBatcher(db.collection(plural), read_limit_ms));
  const changed = await apply({ account, id, condition, update });
  // devices are looked up afresh for every stream
  if (name !== 'device') db.hierarchyChanged();
  return changed;
}

/** The properties of the models that these documents mention, as stored, by identifier: one look-up, or none. */
export async function modelsOf(
  db: Database,
  listed: ListedType,
  account: string,
  documents: readonly Bson[],
): Promise<ReadonlyMap<string, Bson>> {
  const models = new Map<string, Bson>();
  if (!('id_model' in listed.fields)) return models;
  const ids = new Set(documents.map((document) => getString(document, 'id_model')).filter((id) => id !== undefined));
  if (ids.size === 0) return models;
  const found = db.collection('models').find({ account, id_developer: { $in: [...ids] } }, raw);
  for await (const model of found as AsyncIterable<unknown>) {
    const properties = getDocument(model as Bson, 'properties');
    const id = getString(model as Bson, 'id_developer');
    if (id !== undefined && properties !== undefined) models.set(id, properties);
  }
  return models;
}

/** A stored object as it lies in the database, free-form parts as plain JSON; undefined without. */
export async function findResource(
  db: Database,
  plural: string,
  account: string,
  id: string,
): Promise<Values | undefined> {
  const document = await together(db, plural).find(account, id);
  return document && toPlainJson(document);
}

/** @throws AppError notFound (4041) */
async function read(db: Database, plural: string, account: string, id: string): Promise<Values> {
  return toPlainJson(await showResource(db, plural, account, id));
}

async function linkedObjects(
  db: Database,
  resource: Resource,
  account: string,
  stored: Values,
): Promise<Record<string, Values>> {
  const linked: Record<string, Values> = {};
  for (const field of resource.references) {
    const refers = resource.fields[field]?.references;
    const id = stored[field];
    if (refers === undefined || refers.parent || typeof id !== 'string') continue;
    const target = await findResource(db, refers.plural, account, id);
    if (target !== undefined) linked[field] = target;
  }
  return linked;
}

function ignoreNotFound(error: unknown): undefined {
  if (!(error instanceof AppError) || error.failure !== 'notFound') throw error;
}

/** What a move leaves behind: the fields of the other parents. Taking the only parent away is a fault. */
function otherParents({ parents }: Resource, values: Values, stored: Values, faults: FieldErrors): string[] {
  if (parents.length < 2) return [];
  const named = parents.find((field) => typeof values[field] === 'string');
  if (named !== undefined) return parents.filter((field) => field !== named);
  for (const field of parents) {
    if (values[field] === null && stored[field] !== undefined)
      faults[field] = `exactly one of ${parents.join(' and ')} must be given`;
  }
  return [];
}

/** §7.2: groups and assets show the conflict as a field's message, the others as the stored version. */
function conflict(resource: Resource, version: number): AppError {
  return new AppError('conflict', {
    version: resource.conflict === 'number' ? version : `the stored version is ${version}`,
  });
}
