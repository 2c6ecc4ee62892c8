import { type Connection, Schema, type SchemaDefinition } from 'mongoose';
import type { StoredType } from '../kit/fields.js';
import type { Listed } from '../kit/resource.js';
import { apikey, deviceconfig, filestore, mqttcredentials, resources, stream, topic } from '../resources/index.js';

/** What an index promises; `partial` leaves out objects without the field, so that they cost nothing. */
export interface Index {
  key: Record<string, 1 | '2dsphere'>;
  unique?: true;
  partialFilterExpression?: Record<string, unknown>;
}

const storedTypes: Record<Exclude<StoredType, 'computed'>, unknown> = {
  string: String,
  number: Number,
  boolean: Boolean,
  object: Schema.Types.Mixed,
  freeform: Schema.Types.Mixed,
  binary: Schema.Types.Buffer,
  point: { type: { type: String }, coordinates: [Number] },
};

/** The indexes of a listed type: each filter together with the default sort (§4.1), the identifier, the place. */
export function indexesOf(listed: Listed): Index[] {
  const sorted = listed.sorts.get(listed.defaultSort)?.[0] ?? listed.defaultSort;
  const indexes: Index[] = [];
  const taken = new Set<string>();
  const add = (index: Index) => {
    const id = Object.keys(index.key).join();
    if (!taken.has(id)) indexes.push(index);
    taken.add(id);
  };
  for (const paths of listed.unique) add({ key: ascending(paths), unique: true });
  if (listed.within !== undefined) {
    const paths = (listed.sorts.get(listed.defaultSort) ?? [sorted]).filter((path) => path !== listed.within);
    add({ key: ascending(['account', listed.within, ...paths, '_id']) });
    return indexes;
  }
  for (const { index } of listed.filters) {
    const [first] = index.paths;
    if (first === undefined) continue;
    if (index.sphere === true) add({ key: { [first]: '2dsphere' } });
    else {
      const key = ascending(['account', ...index.paths, sorted]);
      const always = alwaysPresent(listed, first);
      add({ key, ...(!always && { partialFilterExpression: { [first]: { $exists: true } } }) });
    }
  }
  return indexes;
}

function ascending(paths: readonly string[]): Index['key'] {
  return Object.fromEntries(paths.map((path) => [path, 1]));
}

function alwaysPresent(listed: Listed, path: string): boolean {
  return path in listed.readOnly || (listed.fields[path] !== undefined && listed.fields[path].presence !== 'optional');
}

function schemaOf(listed: Listed): Schema {
  const definition: Record<string, unknown> = {
    _id: Schema.Types.UUID,
    account: String,
    parent: Schema.Types.UUID,
  };
  for (const [key, field] of Object.entries({ ...listed.readOnly, ...listed.fields, ...listed.hidden })) {
    if (field.kind.stored !== 'computed') definition[key] = storedTypes[field.kind.stored];
  }
  return new Schema(definition as SchemaDefinition, {
    strict: 'throw',
    autoIndex: false,
    autoCreate: false,
    bufferCommands: false,
    collection: listed.plural,
    versionKey: 'uniqueNames' in listed ? 'version' : false,
  });
}

/** Everything the service lists, and what has a collection of its own. */
export const listedTypes: readonly Listed[] = [
  ...resources,
  deviceconfig,
  stream,
  mqttcredentials,
  topic,
  apikey,
  filestore,
];

/** The Mongoose models of all types on a connection. Mongoose keeps types and indexes; the rules stand in the kit. */
export function defineModels(connection: Connection): void {
  for (const listed of listedTypes) {
    const schema = schemaOf(listed);
    for (const { key, ...options } of indexesOf(listed)) schema.index(key, options);
    connection.model(listed.name, schema);
  }
}

/**
 * Builds the indexes and checks that all stand: names and identifiers rest on them. What an operator added is left alone.
 * @throws Error naming the indexes that are missing
 */
export async function ensureIndexes(connection: Connection): Promise<void> {
  for (const model of Object.values(connection.models)) {
    await model.createIndexes();
    const { toCreate } = await model.diffIndexes();
    if (toCreate.length > 0) throw new Error(`indexes of ${model.modelName} are missing: ${JSON.stringify(toCreate)}`);
  }
}

/** Collections that others mention without being beneath them, with the field that does. */
export const linkedTypes = new Map<string, { plural: string; field: string }[]>();
for (const { plural, fields } of resources) {
  for (const [field, { refers }] of Object.entries(fields)) {
    if (refers === undefined || refers.parent) continue;
    linkedTypes.set(refers.plural, [...(linkedTypes.get(refers.plural) ?? []), { plural, field }]);
  }
}
