import { getString } from '../../serialize/bson.js';
import type { Collection, DatabaseAccess, StoredObject } from '../database.js';
import { findRejected } from '../driver-errors.js';
import type { Id } from '../ids.js';
import { sizeOfOpaque } from '../opaque-json.js';
import { findAll, findRaw } from '../raw-find.js';
import { isDocumentWithin, isWithin, type KeyLimit, type Reach } from '../reach.js';
import { createBatcher } from './batcher.js';
import { createLookup } from './lookup.js';

/**
 * Batching loader (cf. DataLoader) for one collection: calls made while a command is in flight are sent together in the
 * next one (docs/decisions/0008-batched-commands.md).
 */
export type BatchLoader = ReturnType<typeof createLoader>;

const limits = { maxBatchSize: 64, maxInFlight: 2, accountOf };

function accountOf({ account }: { account: string }): string {
  return account;
}

/** An object without what it says of itself. */
export interface StoredNode {
  _id: Id;
  account: string;
  id_developer: string;
  enabled: boolean;
  /** Internal ids of the objects above it, from the top; empty for what is not in the hierarchy. */
  ancestors: readonly Id[];
}

/** Creates the loader of a collection. @param maxTimeMS time limit of each read in the database */
export function createLoader(db: DatabaseAccess, plural: string, maxTimeMS: number) {
  // asked for each command, which fails if the data must not be used any more
  const open = () => db.collection<StoredObject>(plural);
  const { maxBatchSize } = limits;
  const find = createLookup<ResourceKey, Uint8Array>({
    async fetch(keys) {
      const documents = new Map<string, Uint8Array>();
      for await (const batch of findRaw(open(), { filter: buildKeyQuery(keys), maxTimeMS }).batches)
        for (const bson of batch) documents.set(keyOfDocument(bson), bson);
      return documents;
    },
    keyOf,
    maxBatchSize,
    accountOf,
  });
  const locate = createLookup<ResourceKey, StoredNode>({
    async fetch(keys) {
      const nodes = await findAll(open(), { filter: buildKeyQuery(keys), projection: nodeProjection, maxTimeMS });
      return new Map(nodes.map((node) => [keyOf({ account: node.account, id: node.id_developer }), toNode(node)]));
    },
    keyOf,
    maxBatchSize,
    accountOf,
  });
  const node = createLookup<Id, StoredNode>({
    async fetch(ids) {
      const filter = { _id: { $in: [...ids] } };
      const nodes = await findAll(open(), { filter, projection: nodeProjection, maxTimeMS });
      return new Map(nodes.map((stored) => [String(stored._id), toNode(stored)]));
    },
    keyOf: String,
    maxBatchSize,
  });
  return {
    /** A stored document as BSON, if it exists within reach. */
    find: withinReach(find, (limit, bson) => isDocumentWithin(limit, plural, bson)),
    /** The place of an object in the hierarchy, if it exists within reach. */
    locate: withinReach(locate, (limit, stored) => isWithin(limit, plural, stored)),
    /** The same by internal id, wherever it is. */
    node,
    /** Inserts one document durably. @throws the driver's error for this document */
    insert: createBatcher<StoredObject>((documents) => insert(open(), documents), {
      ...limits,
      bytesOf: sizeOfOpaque,
    }),
  };
}

/** Drops what is out of reach. Not asynchronous without a limit: most calls have none. */
function withinReach<T>(
  lookUp: (key: ResourceKey) => Promise<T | undefined>,
  isKept: (limit: KeyLimit, value: T) => boolean,
): (reach: Reach, id: string) => Promise<T | undefined> {
  return ({ account, limit }, id) => {
    if (limit === undefined) return lookUp({ account, id });
    return lookUp({ account, id }).then((value) => (value !== undefined && isKept(limit, value) ? value : undefined));
  };
}

const nodeProjection = { account: 1, id_developer: 1, enabled: 1, ancestors: 1 };

function toNode({ _id, account, id_developer, enabled = false, ancestors = [] }: StoredObject): StoredNode {
  return { _id, account, id_developer, enabled, ancestors };
}

export interface ResourceKey {
  account: string;
  id: string;
}

/** Returns a text that is unique for each object of a collection. */
export function keyOf({ account, id }: ResourceKey): string {
  return `${account} ${id}`;
}

/** Returns the same text for a stored document. */
export function keyOfDocument(bson: Uint8Array): string {
  return keyOf({ account: getString(bson, 'account') ?? '', id: getString(bson, 'id_developer') ?? '' });
}

/** Matches accounts × identifiers, so it may return more than requested; results are selected by `keyOf`. */
export function buildKeyQuery(asked: readonly ResourceKey[]): object {
  const accounts = [...new Set(asked.map(({ account }) => account))];
  const ids = [...new Set(asked.map(({ id }) => id))];
  return { account: { $in: accounts }, id_developer: { $in: ids } };
}

async function insert(
  collection: Collection<StoredObject>,
  documents: readonly StoredObject[],
): Promise<ReadonlyMap<StoredObject, Error>> {
  const refused = new Map<StoredObject, Error>();
  const [first] = documents;
  if (documents.length === 1 && first !== undefined) {
    await collection.insertOne(first, { forceServerObjectId: true });
    return refused;
  }
  try {
    await collection.insertMany([...documents], { ordered: false, forceServerObjectId: true });
  } catch (error) {
    // a bulk error does not name the colliding key: retry each rejected document alone to get its own error
    await Promise.all(
      findRejected(documents, error).map((document) =>
        collection
          .insertOne(document, { forceServerObjectId: true })
          .catch((reason: Error) => refused.set(document, reason)),
      ),
    );
  }
  return refused;
}
