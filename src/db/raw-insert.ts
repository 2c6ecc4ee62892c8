import { createRequire } from 'node:module';
import mongoose, { type mongo } from 'mongoose';

const { BSON } = mongoose.mongo;

/** The driver's section of a message with documents that are BSON already. */
interface DocumentSequence {
  push(document: object, bson: Uint8Array): number;
}

/**
 * Not exported by the driver, whose version is pinned. Its `insertMany` takes objects only, and to parse and serialize a
 * stored document changes it: 64-bit integers, `_bsontype` and `$ref` keys of free-form objects.
 */
const { DocumentSequence } = createRequire(createRequire(import.meta.url).resolve('mongoose'))(
  'mongodb/lib/cmap/commands.js',
) as { DocumentSequence: new (field: string) => DocumentSequence };

/** Inserts documents given as BSON, acknowledged by a majority unless told otherwise. @throws Error if one is rejected */
export async function insertRaw(
  db: mongo.Db,
  collection: string,
  documents: readonly Uint8Array[],
  writeConcern: mongo.WriteConcernSettings = { w: 'majority' },
): Promise<void> {
  const { n, writeErrors } = await runInsert(db, collection, documents, writeConcern);
  if (n === documents.length) return;
  throw new Error(`${collection}: ${documents.length - n} documents were rejected: ${writeErrors?.[0]?.errmsg}`);
}

/**
 * Inserts documents given as BSON, acknowledged by the primary. @returns those whose `_id` exists already
 * @throws Error if one is rejected for another reason
 */
export async function insertIfAbsent(
  db: mongo.Db,
  collection: string,
  documents: readonly Uint8Array[],
): Promise<Uint8Array[]> {
  const { writeErrors = [] } = await runInsert(db, collection, documents, { w: 1 });
  const other = writeErrors.find(({ code }) => code !== duplicate_code);
  if (other !== undefined) throw new Error(`${collection}: a document was rejected: ${other.errmsg}`);
  const places = new Set(writeErrors.map(({ index }) => index));
  return documents.filter((_document, index) => places.has(index));
}

const duplicate_code = 11000;

interface InsertReply {
  n: number;
  writeErrors?: readonly { index: number; code: number; errmsg: string }[];
}

async function runInsert(
  db: mongo.Db,
  collection: string,
  documents: readonly Uint8Array[],
  writeConcern: mongo.WriteConcernSettings,
): Promise<InsertReply> {
  const sequence = new DocumentSequence('documents');
  for (const document of documents) sequence.push({}, document);
  const insert = { insert: collection, documents: sequence, ordered: false };
  return (await db.command({ ...insert, writeConcern })) as InsertReply;
}

/** Creates a collection with options and without indexes. @param spec from a snapshot */
export async function createFromSpec(db: mongo.Db, collection: string, spec: Uint8Array): Promise<void> {
  const { options } = BSON.deserialize(spec);
  await db.createCollection(collection, options);
}

/** Builds the indexes of a loaded collection. @param spec from a snapshot */
export async function buildIndexes(db: mongo.Db, collection: string, spec: Uint8Array): Promise<void> {
  const { indexes } = BSON.deserialize(spec) as { indexes: { name: string; key: mongo.Document }[] };
  const wanted = indexes.filter(({ name }) => name !== '_id_');
  if (wanted.length > 0)
    await db.command({ createIndexes: collection, indexes: wanted, writeConcern: { w: 'majority' } });
}
