import type { mongo } from 'mongoose';
import type { Collection, Database, StoredDocument } from './db/database.js';
import type { Id } from './db/ids.js';
import { prepareTopics } from './mqtt/store/credentials.js';
import { prepareForwards } from './mqtt/store/forwards.js';
import { prepareQueues } from './mqtt/store/queue.js';
import { prepareSessions } from './mqtt/store/sessions.js';
import { prepareWills } from './mqtt/store/wills.js';
import { upgradePieces } from './objects/bulk/bulk-journal.js';
import { boundsOf, buildReportedState, createReportIndexes } from './objects/device-deadlines.js';
import { ensureSearchTexts } from './objects/search-text.js';
import { prepareTombstones } from './objects/tombstones.js';
import { deadlineKinds } from './resources/device/status.js';
import { device, event, resources } from './resources/index.js';

/** An upgrade of stored data: idempotent, and safe if several instances run it at once. */
interface Migration {
  id: string;
  run(db: Database): Promise<void>;
}

/** In order of execution. Released ids never change. */
const migrations: readonly Migration[] = [
  { id: 'deadline-bounds', run: addDeadlineBounds },
  { id: 'last-request-id', run: removeMarks },
  { id: 'topic-slots', run: prepareTopics },
  { id: 'tombstones', run: prepareTombstones },
  { id: 'reported-state', run: addReportedState },
  { id: 'search-text', run: ensureSearchTexts },
  { id: 'mqtt-state', run: prepareMqttState },
  { id: 'event-resource', run: dropResourceIndex },
  { id: 'bulk-pieces', run: upgradePieces },
  { id: 'ancestors', run: addAncestors },
];

/** Upgrades data of earlier versions. Each migration runs until it has succeeded once. */
export async function migrate(db: Database): Promise<void> {
  const done = db.collection<{ _id: string; at: Date }>('migrations');
  const finished = new Set((await done.find().toArray()).map(({ _id }) => _id));
  for (const { id, run } of migrations) {
    if (finished.has(id)) continue;
    await run(db);
    await done.updateOne({ _id: id }, { $set: { at: new Date() } }, { upsert: true });
  }
}

async function prepareMqttState(db: Database): Promise<void> {
  await prepareSessions(db);
  await prepareQueues(db);
  await prepareWills(db);
  await prepareForwards(db);
}

/** Indexes of the deadlines, from before their bounds were indexed. */
const legacyIndexes = [
  'account_1_stream_due_at_1_status_due_at_1_id_developer_1',
  'account_1_status_due_at_1_id_developer_1',
] as const;

/** Adds the bounds of the deadlines to devices; the old indexes are dropped last. */
async function addDeadlineBounds(db: Database): Promise<void> {
  const devices = db.collection(device.plural);
  if (!(await devices.indexExists(legacyIndexes[0]))) return;
  const set = Object.assign({}, ...deadlineKinds.map(boundsOf));
  await updateInChunks(db, devices, { stream_late_from: { $exists: false } }, [{ $set: set }]);
  for (const name of legacyIndexes.toReversed()) if (await devices.indexExists(name)) await devices.dropIndex(name);
}

/** Removes the tokens by which version 0.1.0 attributed batched updates. */
async function removeMarks(db: Database): Promise<void> {
  for (const { plural } of resources) {
    await updateInChunks(db, db.collection(plural), { marks: { $exists: true } }, { $unset: { marks: '' } });
  }
}

/** Counts the status of every device as reported: the event log begins with the next change. */
async function addReportedState(db: Database): Promise<void> {
  const devices = db.collection(device.plural);
  const state = buildReportedState(Math.floor(Date.now() / 1000));
  await updateInChunks(db, devices, { stream_late: { $exists: false } }, [{ $set: state }]);
  await createReportIndexes(devices);
}

/** Drops the index of events by `resource`, which the one by `type` replaces. */
async function dropResourceIndex(db: Database): Promise<void> {
  const name = 'account_1_resource_1__id_1';
  const events = db.collection(event.plural);
  if (await events.indexExists(name)) await events.dropIndex(name);
}

/** Stores the ids of the objects above each object, level by level from the top. */
async function addAncestors(db: Database): Promise<void> {
  for (const { plural, ancestors, parentCollections } of resources) {
    if (ancestors.length === 0) continue;
    const collection = db.collection(plural);
    const isMissing = { ancestors: { $exists: false } };
    for (;;) {
      const page = await collection.find(isMissing, { projection: { parent: 1 }, limit: chunk_size }).toArray();
      if (page.length === 0) break;
      const parents = { _id: { $in: page.map(({ parent }) => parent as Id) } };
      const chains = new Map<string, readonly unknown[]>();
      for (const above of Object.values(parentCollections))
        for await (const found of db.collection(above).find(parents, { projection: { ancestors: 1 } }))
          chains.set(String(found._id), [...((found.ancestors as Id[] | undefined) ?? []), found._id]);
      const updates = page.map(({ _id, parent }) => ({
        updateOne: {
          filter: { _id, ...isMissing },
          // what is below a deleted object goes with the rest of its removal
          update: { $set: { ancestors: chains.get(String(parent)) ?? [parent] } },
        },
      }));
      await collection.bulkWrite(updates as mongo.AnyBulkWriteOperation<StoredDocument>[], { ordered: false });
    }
    // the index of the ancestors replaces those of the fields that name a parent
    for (const { key, name } of await collection.indexes()) {
      const [, second = ''] = Object.keys(key);
      if (second in parentCollections && name !== undefined) await collection.dropIndex(name);
    }
  }
}

const chunk_size = 5000;

/** Updates a collection in order of `_id`, in pieces that take far less than the socket timeout. */
async function updateInChunks(
  db: Database,
  collection: Collection,
  filter: object,
  update: mongo.UpdateFilter<mongo.Document> | mongo.Document[],
): Promise<void> {
  for (let after = db.buildMinId(0), isFull = true; isFull; ) {
    const page = await collection
      .find({ _id: { $gt: after } }, { projection: { _id: 1 }, sort: { _id: 1 }, limit: chunk_size })
      .toArray();
    const ids = page.map(({ _id }) => _id);
    await collection.updateMany({ _id: { $in: ids }, ...filter }, update as mongo.Document[]);
    isFull = page.length === chunk_size;
    after = ids.at(-1) ?? after;
  }
}
