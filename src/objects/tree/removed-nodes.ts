import type { mongo } from 'mongoose';
import {
  buildBounds,
  type ClusteredDocument,
  deleteRange,
  findOccupied,
  type RangeCondition,
} from '../../db/clustered.js';
import type { Database, StoredDocument, StoredObject } from '../../db/database.js';
import { deleteInChunks } from '../../db/delete-in-chunks.js';
import type { Id } from '../../db/ids.js';
import { hasMatch } from '../../db/raw-find.js';
import { runInParallel } from '../../lib/parallel.js';
import { collections, resources } from '../../resources/index.js';
import type { EventDeclaration, StoredType } from '../../schema/resource.js';
import type { OperationContext } from '../context.js';
import { type Deletion, deleteRecorded, deleteWithTombstone, writeTombstones } from './tombstones.js';

/** An object that a removal deletes. */
export interface NodeRef {
  _id: Id;
  id: string;
  /** Internal ids of the objects above it; absent in entries of version 0.2.0. */
  ancestors?: readonly Id[];
}

/** The part of a removal that the event log needs. */
export interface RecordedRemoval {
  /** The first entry of the removal. */
  root: Id;
  account: string;
  plural: string;
  nodes: readonly NodeRef[];
  /** A node is deleted only while it is below one of these; absent for the object that the request named. */
  above?: readonly Id[];
  user: string;
  request_id: string;
}

/** The word for an object of a collection in the types of events. */
export const resourceNames: ReadonlyMap<string, string> = new Map(
  collections.map(({ plural, name }) => [plural, name]),
);

/** A type whose objects have a parent and no `ancestors`. */
export interface Leaf extends Pick<StoredType, 'name' | 'plural' | 'clusteredBy' | 'isDerived'> {
  /** The field that names the parent. */
  field: string;
  events?: EventDeclaration | undefined;
}

/** Returns the types whose objects have a parent of this type and no `ancestors`. */
export function leavesOf(plural: string): Leaf[] {
  return collections
    .filter((type) => !resources.some((resource) => resource.plural === type.plural))
    .flatMap(({ name, plural: leaf, parentCollections, clusteredBy, isDerived = false, events }) =>
      Object.entries(parentCollections)
        .filter(([, parent]) => parent === plural)
        .map(([field]) => ({ name, plural: leaf, field, clusteredBy, isDerived, events })),
    );
}

/** Builds the conditions on the leaves of objects: of a clustered type a range for each. */
export function buildLeafRanges(
  account: string,
  clusteredBy: readonly string[],
  parents: readonly { _id: Id; id: string }[],
): RangeCondition[] {
  const [, field = '', next = ''] = clusteredBy;
  // another object may have had the identifier before
  return parents.map(({ _id, id }) => ({ _id: buildBounds({ account, [field]: id }, next), parent: _id }));
}

/** Collections of leaves whose deletions are logged, with the members that their events show. */
const loggedLeaves: ReadonlyMap<string, readonly string[]> = new Map(
  resources
    .flatMap((resource) => leavesOf(resource.plural))
    .flatMap(({ plural, events }) => (events?.delete === undefined ? [] : [[plural, events.shown ?? []]])),
);

export const nodeProjection = { id_developer: 1, ancestors: 1 };

/** Describes a stored object as a node of a removal. */
export function describeNode({ _id, id_developer, ancestors }: StoredObject): NodeRef {
  return { _id, id: id_developer, ...(ancestors && { ancestors }) };
}

/** Records who deletes the nodes of a journal entry. */
export async function writeNodeTombstones(
  db: Database,
  removal: RecordedRemoval,
  session?: mongo.ClientSession,
): Promise<void> {
  const deletions = removal.nodes.map((node) => describeDeletion(removal, node));
  await writeTombstones(db, removal.root, deletions, session);
}

function describeDeletion({ account, plural, user, request_id }: RecordedRemoval, node: NodeRef): Deletion {
  const { _id, id, ancestors } = node;
  const resource = resourceNames.get(plural) ?? plural;
  return { object: _id, id_developer: id, ...(ancestors && { ancestors }), account, resource, user, request_id };
}

/** Deletes the object that a request named, unless `condition` does not hold, and records it. @returns the number of deleted objects */
export async function deleteNamedNode(
  db: Database,
  removal: RecordedRemoval,
  node: NodeRef,
  condition: object = {},
): Promise<number> {
  const { plural, root } = removal;
  const isDeleted = await deleteWithTombstone(db, plural, root, describeDeletion(removal, node), condition);
  return isDeleted ? 1 : 0;
}

/** Types that a removal searches at once: most have nothing to delete. One removal may not take all connections. */
const max_types_at_once = 3;

/** Deletes what belongs directly to nodes that are deleted: what is clustered by them, or all else. */
export async function deleteLeaves(db: Database, removal: RecordedRemoval, isClustered: boolean): Promise<void> {
  const leaves = leavesOf(removal.plural).filter((leaf) => (leaf.clusteredBy !== undefined) === isClustered);
  await runInParallel(leaves, max_types_at_once, (leaf) => deleteLeavesOfType(db, removal, leaf));
}

async function deleteLeavesOfType(
  db: Database,
  removal: RecordedRemoval,
  { plural, field, clusteredBy }: Leaf,
): Promise<void> {
  const { account, nodes } = removal;
  if (clusteredBy !== undefined) {
    const leaves = db.collection<ClusteredDocument>(plural);
    const ranges = await findOccupied(leaves, buildLeafRanges(account, clusteredBy, nodes));
    for (const range of ranges) await deleteRange(leaves, range);
    return;
  }
  const filter = {
    account,
    [field]: { $in: nodes.map(({ id }) => id) },
    parent: { $in: nodes.map(({ _id }) => _id) },
  };
  await deleteInChunks(db.collection(plural), filter, {
    projection: buildLeafProjection(plural),
    beforeDelete: (documents) => writeLeafTombstones(db, removal, plural, documents),
  });
}

function buildLeafProjection(plural: string): Record<string, 1> {
  const members = loggedLeaves.get(plural);
  if (members === undefined) return { _id: 1 };
  return Object.fromEntries(['_id', 'id', 'id_developer', 'device', 'parent', ...members].map((path) => [path, 1]));
}

/** Records who deletes leaves, if their deletion is logged. */
async function writeLeafTombstones(
  db: Database,
  { root, account, user, request_id }: RecordedRemoval,
  plural: string,
  documents: readonly StoredDocument[],
): Promise<void> {
  const members = loggedLeaves.get(plural);
  if (members === undefined) return;
  const by = { account, user, request_id };
  const deletions = documents.map((document) => ({ ...by, ...describeLeaf(plural, members, document) }));
  await writeTombstones(db, root, deletions);
}

/** Deletes one document below a device. @returns false if it was gone already */
export async function removeLeaf(ctx: OperationContext, plural: string, document: StoredDocument): Promise<boolean> {
  const members = loggedLeaves.get(plural);
  if (members !== undefined) return deleteRecorded(ctx, plural, describeLeaf(plural, members, document));
  return (await ctx.store.db.collection(plural).deleteOne({ _id: document._id })).deletedCount === 1;
}

function describeLeaf(plural: string, members: readonly string[], document: StoredDocument) {
  const { _id, id, id_developer = id, device: ofDevice, parent } = document;
  const resource = resourceNames.get(plural) ?? plural;
  return {
    object: _id,
    resource,
    id_developer: String(ofDevice ?? id_developer),
    ...(ofDevice !== undefined && { device: parent as Id }),
    ...(members.length > 0 && { data: Object.fromEntries(members.map((member) => [member, document[member]])) }),
  };
}

/**
 * Inserts a document below a parent that was found: insert, verify the parent, compensate. If the parent was deleted at the
 * same time, the document is deleted with it, and the insert has succeeded before. @throws the driver's error for a duplicate
 */
export async function insertUnderParent(
  ctx: OperationContext,
  plural: string,
  document: StoredDocument & { parent: Id },
  parentPlural: string,
): Promise<void> {
  const { db } = ctx.store;
  await db.collection(plural).insertOne(document, { forceServerObjectId: true });
  // compares internal ids: another object may have the identifier by now
  if (!(await hasMatch(db.collection(parentPlural), { _id: document.parent }))) await removeLeaf(ctx, plural, document);
}
