import type { mongo } from 'mongoose';
import type { Database, StoredDocument } from '../db/database.js';
import type { Id } from '../db/ids.js';
import { collections } from '../db/indexes.js';
import { mqttcredentials, topic } from '../resources/index.js';
import type { OperationContext } from './context.js';
import { deleteRecorded, writeTombstones } from './tombstones.js';

/** The parent of an object: `field` names it. */
export interface ParentRef {
  field: string;
  id: string;
}

/** An object that a removal deletes. */
export interface NodeRef {
  _id: Id;
  id: string;
  /** The node's own parent; absent at the top, and in entries of earlier versions. */
  parent?: ParentRef;
}

/** The part of a removal that the event log needs. */
export interface RecordedRemoval {
  /** The first entry of the removal. */
  root: Id;
  account: string;
  plural: string;
  nodes: readonly NodeRef[];
  /** A node is deleted only if its parent is one of these; absent for the object that the request named. */
  above?: readonly Id[];
  user: string;
  request_id: string;
}

/** The word for an object of a collection in the types of events. */
export const resourceNames: ReadonlyMap<string, string> = new Map(
  collections.map(({ plural, name }) => [plural, name]),
);

const parentFields: ReadonlyMap<string, readonly string[]> = new Map(
  collections.map(({ plural, parentCollections }) => [plural, Object.keys(parentCollections)]),
);

/** Collections below devices whose deletions are logged, with the field that names an object of a device. */
const loggedLeaves: ReadonlyMap<string, string> = new Map([
  [mqttcredentials.plural, 'username'],
  [topic.plural, 'name'],
]);

/** Finds the parent that a stored document of a collection names. */
export function findParentRef(plural: string, document: { [field: string]: unknown }): ParentRef | undefined {
  const field = parentFields.get(plural)?.find((name) => typeof document[name] === 'string');
  return field === undefined ? undefined : { field, id: String(document[field]) };
}

/** Builds the projection that `describeNode` and `findParentRef` need. */
export function buildNodeProjection(plural: string): Record<string, 1> {
  return Object.fromEntries(['id_developer', ...(parentFields.get(plural) ?? [])].map((field) => [field, 1]));
}

/** Describes a stored object as a node of a removal. */
export function describeNode(plural: string, document: StoredDocument): NodeRef {
  const parent = findParentRef(plural, document);
  return { _id: document._id, id: String(document.id_developer), ...(parent && { parent }) };
}

/** Records who deletes the nodes of a journal entry. */
export async function writeNodeTombstones(
  db: Database,
  removal: RecordedRemoval,
  session?: mongo.ClientSession,
): Promise<void> {
  const { root, account, plural, nodes, above, user, request_id } = removal;
  const resource = resourceNames.get(plural) ?? plural;
  const by = { account, resource, user, request_id, root: above === undefined };
  const deletions = nodes.map(({ _id, id, parent }) => ({
    object: _id,
    id_developer: id,
    ...(parent && { parent }),
    ...by,
  }));
  await writeTombstones(db, root, deletions, session);
}

/** Builds the projection that `writeLeafTombstones` needs. */
export function buildLeafProjection(plural: string): Record<string, 1> {
  const member = loggedLeaves.get(plural);
  return { _id: 1, ...(member && { device: 1, [member]: 1 }) };
}

/** Records who deletes objects below devices, if their deletion is logged. */
export async function writeLeafTombstones(
  db: Database,
  { root, account, user, request_id }: RecordedRemoval,
  plural: string,
  documents: readonly StoredDocument[],
): Promise<void> {
  const member = loggedLeaves.get(plural);
  if (member === undefined) return;
  const by = { account, user, request_id, root: false };
  const deletions = documents.map((document) => ({ ...by, ...describeLeaf(plural, member, document) }));
  await writeTombstones(db, root, deletions);
}

/** Deletes one document below a device. @returns false if it was gone already */
export async function removeLeaf(ctx: OperationContext, plural: string, document: StoredDocument): Promise<boolean> {
  const member = loggedLeaves.get(plural);
  if (member !== undefined) return deleteRecorded(ctx, plural, describeLeaf(plural, member, document));
  return (await ctx.store.db.collection(plural).deleteOne({ _id: document._id })).deletedCount === 1;
}

function describeLeaf(plural: string, member: string, document: StoredDocument) {
  const id = String(document.device);
  const parent = { field: 'device', id };
  const resource = resourceNames.get(plural) ?? plural;
  return { object: document._id, resource, id_developer: id, parent, data: { [member]: document[member] } };
}
