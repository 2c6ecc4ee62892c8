import type { mongo } from 'mongoose';
import type { Change } from '../db/change-stream.js';
import type { DatabaseAccess } from '../db/database.js';
import { storedNameOf } from '../db/former-versions.js';
import type { Id } from '../db/ids.js';
import type { Ancestors } from '../objects/tree/ancestors.js';
import { type Tombstone, tombstonesOf } from '../objects/tree/tombstones.js';
import { parseLastChange } from '../objects/write/last-change.js';
import type { StoredEvent } from '../resources/event.js';
import { collections } from '../resources/index.js';
import type { Fields } from '../schema/fields.js';
import type { EventDeclaration } from '../schema/resource.js';
import { describeSubject, type Subject, type Subjects } from './subjects.js';

export interface LoggedChange extends Change {
  ns: { coll: string };
  documentKey: { _id: Id };
  /** Time of the database's clock. */
  wallTime: Date;
  fullDocument?: mongo.Document;
  updateDescription?: { updatedFields: mongo.Document; removedFields: readonly string[] };
}

/** Logging rules of one collection. */
interface LoggedType extends EventDeclaration {
  subject: string;
  /** Fields that `changed` names. */
  fields: Fields;
}

const loggedTypes: ReadonlyMap<string, LoggedType> = new Map(
  collections.flatMap(({ plural, name, fields, events }) =>
    events?.insert === undefined && events?.named === undefined
      ? []
      : // changes of before an upgrade have the former name
        [plural, storedNameOf(plural)].map((collection) => [collection, { subject: name, ...events, fields }] as const),
  ),
);

/** Stored paths of fields that are stored under another name. */
const storedAs: Readonly<Record<string, string>> = { lon: 'location', lat: 'location', password: 'hash' };

const updatedCollections = [...loggedTypes]
  .filter(([, { update, named }]) => update !== undefined || named !== undefined)
  .map(([plural]) => plural);

const unloggedMembers = [...loggedTypes.values()].flatMap(({ unlogged = [] }) => unlogged);

const shownMembers = [
  ...['account', 'tenant', 'id_developer', 'device', 'provider', 'username', 'id', 'name', 'version', 'scope'],
  ...['owner', 'last_request_id', 'last_change', 'ancestors', 'parent'],
];

/**
 * Stages that select the logged changes: inserts, deletions, updates by requests, which alone write `last_change`, and moves.
 * Large members stay in the database. MongoDB tests the first stage on each entry of its log, those of streams included: a
 * stricter one, with a condition for each collection, takes twice as long.
 */
export const loggedChanges: readonly mongo.Document[] = [
  {
    $match: {
      $or: [
        { operationType: { $in: ['insert', 'delete'] }, 'ns.coll': { $in: [...loggedTypes.keys(), 'tombstones'] } },
        { 'updateDescription.updatedFields.last_change': { $exists: true } },
        { 'updateDescription.updatedFields.ancestors': { $exists: true } },
      ],
    },
  },
  {
    $project: {
      ...Object.fromEntries(['operationType', 'ns', 'documentKey', 'clusterTime', 'wallTime'].map((key) => [key, 1])),
      updateDescription: 1,
      fullDocument: {
        ...Object.fromEntries(shownMembers.map((key) => [key, 1])),
        ...Object.fromEntries(['resource', 'user', 'request_id', 'data'].map((key) => [key, 1])),
      },
    },
  },
  ...unloggedMembers.map((member) => ({ $unset: `updateDescription.updatedFields.${member}` })),
];

/** An event without the members that depend on others. */
interface Draft {
  at: number;
  type: string;
  subject: Subject;
  user?: unknown;
  request_id?: unknown;
  data?: object | undefined;
}

/** Derives the events of changes, in the same order. @param nextId returns the id of the next event at a cluster time */
export async function deriveEvents(
  db: DatabaseAccess,
  subjects: Subjects,
  changes: readonly LoggedChange[],
  nextId: (at: mongo.Timestamp) => string,
): Promise<StoredEvent[]> {
  const tombstones = await findTombstones(db, changes);
  await loadUpdated(subjects, changes);
  const drafts: Draft[] = [];
  const ids: string[] = [];
  const ancestors: Ancestors[] = [];
  const locateDrafts = async () =>
    ancestors.push(...(await subjects.findAncestors(drafts.slice(ancestors.length).map(({ subject }) => subject))));
  for (const change of changes) {
    // events show an object where it was at their time
    const isMove = change.updateDescription?.updatedFields.ancestors !== undefined;
    if (isMove && drafts.length > ancestors.length) await locateDrafts();
    for (const draft of draftsOf(change, tombstones, subjects)) {
      drafts.push(draft);
      ids.push(nextId(change.clusterTime));
    }
  }
  await locateDrafts();
  return drafts.map(({ at, type, subject, user, request_id, data }, index) => ({
    _id: ids[index] ?? '',
    account: subject.account,
    type,
    at,
    resource: type.slice(0, type.indexOf('.')),
    id_developer: subject.id_developer,
    ...(typeof user === 'string' && { user }),
    // lines of an import have numbers behind the id of their request
    ...(typeof request_id === 'string' && { request_id: request_id.split('/', 1)[0] ?? request_id }),
    ...ancestors[index],
    ...(data && { data }),
  }));
}

/** Loads the objects of updates. Those created by the same changes become known in their turn. */
async function loadUpdated(subjects: Subjects, changes: readonly LoggedChange[]): Promise<void> {
  for (const plural of updatedCollections) {
    const updates = changes.filter(({ operationType, ns }) => operationType === 'update' && ns.coll === plural);
    const ids = updates.map(({ documentKey }) => documentKey._id);
    await subjects.load(plural, ids);
  }
}

/** Finds the tombstones of deleted documents. Of several, a final one counts, then the latest. */
async function findTombstones(
  db: DatabaseAccess,
  changes: readonly LoggedChange[],
): Promise<ReadonlyMap<string, Tombstone>> {
  const deleted = changes.filter(({ operationType }) => operationType === 'delete');
  if (deleted.length === 0) return new Map();
  const object = { $in: deleted.map(({ documentKey }) => documentKey._id) };
  const tombstones = await tombstonesOf(db)
    .find({ object }, { sort: { isFinal: 1, at: 1 } })
    .toArray();
  return new Map(tombstones.map((tombstone) => [String(tombstone.object), tombstone]));
}

/** The events of a change: one, none, or those that it names. */
function draftsOf(
  change: LoggedChange,
  tombstones: ReadonlyMap<string, Tombstone>,
  subjects: Subjects,
): readonly Draft[] {
  const { operationType, ns, documentKey, fullDocument } = change;
  const at = change.wallTime.getTime() / 1000;
  const logged = loggedTypes.get(ns.coll);
  if (operationType === 'delete') {
    const tombstone = tombstones.get(String(documentKey._id));
    if (logged?.delete === undefined || tombstone === undefined) return [];
    return [{ at, type: `${logged.subject}.${logged.delete}`, ...describeDeletion(tombstone) }];
  }
  if (logged === undefined) {
    // the tombstones of other objects wait for their deletion
    if (operationType !== 'insert' || fullDocument?.resource !== 'streams') return [];
    return [{ at, type: 'streams.deleted', ...describeDeletion(fullDocument as Tombstone) }];
  }
  if (operationType === 'insert' && fullDocument !== undefined) {
    const subject = describeSubject(fullDocument);
    subjects.place(documentKey._id, subject);
    return draftsOfInsert(logged, fullDocument, { at, subject });
  }
  return draftsOfUpdate(logged, change, subjects);
}

function draftsOfInsert(
  logged: LoggedType,
  document: mongo.Document,
  base: Pick<Draft, 'at' | 'subject'>,
): readonly Draft[] {
  const { owner, last_request_id, last_change } = document;
  const by = last_change === undefined ? { user: owner, request_id: last_request_id } : parseLastChange(last_change);
  if ('events' in by && by.events !== undefined) return by.events.map((event) => ({ ...base, ...event }));
  if (logged.insert === undefined) return [];
  const data = logged.shown && Object.fromEntries(logged.shown.map((key) => [key, document[key]]));
  const { user, request_id } = by;
  return [{ ...base, type: `${logged.subject}.${logged.insert}`, user, request_id, data }];
}

function draftsOfUpdate(
  logged: LoggedType,
  { documentKey, wallTime, updateDescription }: LoggedChange,
  subjects: Subjects,
): readonly Draft[] {
  const at = wallTime.getTime() / 1000;
  const recalled = subjects.recall(documentKey._id);
  // deleted since, and its tombstone too: the reader was away for long
  if (recalled === undefined || updateDescription === undefined) return [];
  const { updatedFields } = updateDescription;
  const { version, last_change, ancestors = recalled.ancestors } = updatedFields;
  const subject = { ...recalled, ancestors };
  subjects.place(documentKey._id, subject);
  // moved with an object above it
  if (last_change === undefined) return [];
  const { user, request_id, status, changed, disabled, events } = parseLastChange(last_change);
  if (events !== undefined) return events.map((event) => ({ ...event, at, subject }));
  if (status !== undefined) return [{ at: status.since, type: 'device.status_changed', subject, data: status }];
  if (logged.update === undefined) return [];
  const data = {
    ...(version !== undefined && { version: Number(version) }),
    changed: changed ?? changedFields(logged, updateDescription),
  };
  // the service disables webhooks whose receiver takes nothing any more
  const kind = disabled ? 'disabled' : logged.update;
  return [{ at, type: `${logged.subject}.${kind}`, subject, user, request_id, data }];
}

function describeDeletion({ account, id_developer, ancestors, device, user, request_id, data }: Tombstone) {
  return { subject: { account, id_developer, ancestors, device }, user, request_id, data };
}

/** Names the fields whose values an update changed, in the order of the declaration. */
function changedFields(
  { fields }: LoggedType,
  { updatedFields, removedFields }: NonNullable<LoggedChange['updateDescription']>,
): string[] {
  const paths = [...Object.keys(updatedFields), ...removedFields].map((path) => path.split('.', 1)[0]);
  const touched = new Set(paths);
  return Object.keys(fields).filter((field) => touched.has(storedAs[field] ?? field));
}
