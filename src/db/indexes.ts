import { type Connection, type IndexOptions, type mongo, Schema, type SchemaDefinition } from 'mongoose';
import { runInParallel } from '../lib/parallel.js';
import { ignore } from '../lib/promises.js';
import { collections, resources } from '../resources/index.js';
import type { StorageKind } from '../schema/fields.js';
import type { Filter } from '../schema/filters.js';
import type { ListedType, StoredType } from '../schema/resource.js';
import { isExistingNamespace } from './driver-errors.js';
import { storedNameOf } from './former-versions.js';

/** A MongoDB index. Partial indexes leave out objects without the field, which then cost nothing. */
export interface Index {
  key: Record<string, 1 | '2dsphere'>;
  unique?: true;
  partialFilterExpression?: Record<string, unknown>;
}

const mongooseTypes: Record<Exclude<StorageKind, 'computed'>, unknown> = {
  string: String,
  number: Number,
  boolean: Boolean,
  object: Schema.Types.Mixed,
  freeform: Schema.Types.Mixed,
  binary: Schema.Types.Buffer,
  ids: [Schema.Types.UUID],
  point: { type: { type: String }, coordinates: [Number] },
};

/** Derives the indexes of a type (docs/indexes.md): unique keys, those of its lists, and those that it declares. */
export function deriveIndexes(type: StoredType | ListedType): Index[] {
  if (type.clusteredBy !== undefined) return [];
  const candidates: Index[] = [
    ...type.unique.map((paths): Index => ({ key: ascending(paths), unique: true })),
    ...type.indexes.map((paths): Index => ({ key: ascending(paths) })),
    ...('defaultSort' in type ? deriveListIndexes(type) : []),
  ];
  const byKey = new Map<string, Index>();
  for (const index of candidates) {
    const paths = Object.keys(index.key).join();
    if (!byKey.has(paths)) byKey.set(paths, index);
  }
  return [...byKey.values()];
}

/** The default sort, and each filter followed by it: a page is read without sorting, or sorted by index keys alone. */
function deriveListIndexes(listed: ListedType): Index[] {
  const { parentField, filters } = listed;
  const order = sortPaths(listed, listed.defaultSort);
  if (parentField !== undefined) return [{ key: ascending(['account', parentField, ...order]) }];
  const filtered = filters.filter(
    ({ index }) => index.paths.length > 0 && (index.geo === true || !isUnique(listed, index.paths)),
  );
  // of other parents an object may be anywhere below, so that `ancestors` do not find their children
  const parents = Object.keys(listed.parentCollections ?? {}).filter((field) => field !== findNearestParent(listed));
  return [
    { key: ascending(['account', ...order]) },
    ...filtered.map((filter) => deriveFilterIndex(listed, filter)),
    ...parents.map((field) => ({ key: ascending(['account', field, ...order]) })),
  ];
}

/** The parent at the lowest level of a type: all that is below it are its children. */
export function findNearestParent({ ancestors }: ListedType): string | undefined {
  return ancestors.at(-1)?.field;
}

/** Derives the index that serves one filter of a listed type. */
export function deriveFilterIndex(listed: ListedType, { index }: Filter): Index {
  const { paths, trailingPaths = [], sorted, geo, scanned, partialAbove } = index;
  const [first = ''] = paths;
  if (geo === true) return { key: { account: 1, [first]: '2dsphere' } };
  const order = sortPaths(listed, listed.defaultSort);
  if (scanned === true) return { key: ascending(['account', ...order, ...paths]) };
  const key = ascending(['account', ...paths, ...trailingPaths, ...(sorted ? sortPaths(listed, first) : []), ...order]);
  if (partialAbove !== undefined) return { key, partialFilterExpression: { [first]: { $gt: partialAbove } } };
  return { key, ...(!alwaysPresent(listed, first) && { partialFilterExpression: { [first]: { $exists: true } } }) };
}

/** Returns the index of everything below an object. */
export function ancestorIndexOf(listed: ListedType): Index['key'] {
  const filter = listed.filters.find(({ index }) => index.paths[0] === 'ancestors');
  return filter === undefined ? {} : deriveFilterIndex(listed, filter).key;
}

/** Returns the stored paths of a `sort` value; ties are in order of creation (reference/lists.md#sorting). */
export function sortPaths(listed: ListedType, key: string): readonly string[] {
  const paths = listed.sorts.get(key) ?? [key];
  if (isUnique(listed, paths)) return paths;
  const created = listed.clusteredBy === undefined ? '_id' : `_id.${listed.clusteredBy.at(-1)}`;
  return paths.includes(created) ? paths : [...paths, created];
}

/** Reports whether each combination of values is unique in an account. */
export function isUnique({ unique }: StoredType, paths: readonly string[]): boolean {
  return unique.some((keys) => keys.every((path) => path === 'account' || paths.includes(path)));
}

function ascending(paths: readonly string[]): Index['key'] {
  return Object.fromEntries(paths.map((path) => [path, 1]));
}

function alwaysPresent(listed: ListedType, path: string): boolean {
  const field = listed.fields[path] ?? listed.hidden[path];
  return path in listed.readOnly || (field !== undefined && field.presence !== 'optional');
}

function schemaOf(type: StoredType): Schema {
  const definition: Record<string, unknown> = {
    _id: type.clusteredBy === undefined ? Schema.Types.UUID : Schema.Types.Mixed,
    account: String,
    parent: Schema.Types.UUID,
  };
  for (const [key, field] of Object.entries({ ...type.readOnly, ...type.fields, ...type.hidden })) {
    if (field.type.stored !== 'computed') definition[key] = mongooseTypes[field.type.stored];
  }
  const versionKey = type.versioned ? 'version' : false;
  return new Schema(definition as SchemaDefinition, {
    ...schemaOptions,
    collection: storedNameOf(type.plural),
    versionKey,
  });
}

const schemaOptions = { strict: 'throw', autoIndex: false, autoCreate: false, bufferCommands: false } as const;

/** Indexes beyond those of the declarations, by collection. */
export type Indexes = Readonly<Record<string, readonly mongo.IndexDescription[]>>;

/** Defines Mongoose models: the stored types and all indexes. Validation is done by schema/. */
export function defineModels(connection: Connection, others: Indexes): void {
  const define = (name: string, schema: Schema, indexes: readonly mongo.IndexDescription[]) => {
    for (const { key, ...options } of indexes) schema.index(key as Index['key'], options as IndexOptions);
    if (indexes.length > 0) connection.model(name, schema);
  };
  for (const type of collections) define(type.name, schemaOf(type), deriveIndexes(type));
  for (const [plural, indexes] of Object.entries(others))
    define(plural, new Schema({}, { ...schemaOptions, collection: storedNameOf(plural) }), indexes);
}

/** Commands at a time: each needs a connection, which a start has to open first. */
const max_concurrent = 8;

/**
 * Builds the indexes and verifies them: uniqueness of names and identifiers depends on them. Further indexes of an
 * operator are kept. @throws Error naming the indexes that are missing
 */
export async function ensureIndexes(connection: Connection): Promise<void> {
  for (const { plural, clusteredBy } of collections)
    if (clusteredBy !== undefined) await createClustered(connection, plural);
  // one command for a model: a large collection is scanned once for all that is missing
  await runInParallel(Object.values(connection.models), max_concurrent, ({ collection, schema }) =>
    collection.createIndexes(schema.indexes().map(([key, options]) => ({ key, ...options }) as Index)),
  );
  const missing = await findMissingIndexes(connection);
  if (missing.length > 0) throw new Error(`indexes are missing: ${missing.join(', ')}`);
}

/** Finds the indexes that do not exist or have changed, such as `devices account_1_name_1`. */
export async function findMissingIndexes(connection: Connection): Promise<string[]> {
  const missing: string[] = [];
  await runInParallel(Object.values(connection.models), max_concurrent, async (model) => {
    const { toCreate } = await model.diffIndexes();
    for (const key of toCreate) missing.push(`${model.collection.name} ${Object.entries(key).flat().join('_')}`);
  });
  return missing;
}

/**
 * Collections in the order of a compound `_id` (docs/decisions/0024-streams-clustered-by-device.md). Small pages: each insert
 * into one that is not in the cache reads and writes it whole. Small steps: compressed pages fill them.
 */
export const clusteredOptions: mongo.CreateCollectionOptions = {
  clusteredIndex: { key: { _id: 1 }, unique: true },
  storageEngine: {
    wiredTiger: { configString: 'block_compressor=zstd,memory_page_max=1m,leaf_page_max=16K,allocation_size=512B' },
  },
};

/** Creates a clustered collection; one of an earlier version is upgraded by a migration. */
async function createClustered({ db }: Connection, plural: string): Promise<void> {
  await db?.createCollection(plural, clusteredOptions).catch(ignore(isExistingNamespace));
}

/** References that keep an object from being deleted, by its collection. */
export const protectedBy = new Map<string, { plural: string; field: string }[]>();
for (const { plural, fields } of collections) {
  for (const [field, { references }] of Object.entries(fields)) {
    if (references?.protects !== true) continue;
    protectedBy.set(references.plural, [...(protectedBy.get(references.plural) ?? []), { plural, field }]);
  }
}

/** References other than to a parent, by the collection they refer to. */
export const referencedBy = new Map<string, { plural: string; field: string }[]>();
for (const { plural, fields } of resources) {
  for (const [field, { references }] of Object.entries(fields)) {
    if (references === undefined || references.parent) continue;
    referencedBy.set(references.plural, [...(referencedBy.get(references.plural) ?? []), { plural, field }]);
  }
}
