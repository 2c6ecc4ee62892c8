import type { mongo } from 'mongoose';
import { commandSlots, commandTimes } from '../commands/store.js';
import type { DatabaseAccess, StoredDocument } from '../db/database.js';
import type { UpgradeContext } from '../db/gate.js';
import type { Id } from '../db/ids.js';
import { deriveIndexes, type Indexes } from '../db/indexes.js';
import { upgradeConfigEntries } from '../device-state/upgrade.js';
import { readInBatches } from '../lib/batches.js';
import { topicSlots } from '../mqtt/store/credentials.js';
import { forward_ttl_s, forwards } from '../mqtt/store/forwards.js';
import { upgradeRetained } from '../mqtt/store/retained.js';
import { expired_session_ttl_s, session_ttl_s } from '../mqtt/store/sessions.js';
import { upgradePieces } from '../objects/bulk/bulk-journal.js';
import { reportIndexOf } from '../objects/receipts/device-deadlines.js';
import { measured_paths, measuredPathsOf } from '../objects/values/measured-paths.js';
import { gravityOf, severities } from '../resources/alarm-states.js';
import { deadlineKinds } from '../resources/device/status.js';
import {
  alarm,
  alarmrule,
  command,
  device,
  deviceconfig,
  event,
  model,
  resources,
  retainedmessage,
  streamsummary,
  topic,
  webhook,
} from '../resources/index.js';
import { bySuffixedPath, findSuffixedPaths } from '../resources/suffixed-paths.js';
import { buildSearchText } from '../schema/search.js';
import { streamRateIndexes } from '../streams/stream-rate.js';
import { upgradeStreams } from '../streams/upgrade.js';

/** An upgrade of stored data: idempotent, as it may be interrupted at any point. */
interface Migration {
  id: string;
  run(db: DatabaseAccess, context: UpgradeContext): Promise<unknown>;
}

/** In order of execution. Released ids never change. `data_version` counts them: earlier versions refuse the data. */
export const migrations: readonly Migration[] = [
  { id: 'event-resource', run: (db) => dropIndex(db, event.plural, 'account_1_resource_1__id_1') },
  { id: 'bulk-pieces', run: upgradePieces },
  { id: 'ancestors', run: addAncestors },
  // version 0.2.0 has another one called search-text
  { id: 'search-text-of-imports', run: addSearchText },
  { id: 'condition-marks', run: markMetConditions },
  { id: 'clustered-streams', run: upgradeStreams },
  { id: 'gravity', run: addGravity },
  // the values at paths that were declared before they were kept are read from streams
  { id: 'device-values', run: (db) => measuredPathsOf(db).updateMany({}, { $set: { fill_at: 0 } }) },
  { id: 'config-entries', run: upgradeConfigEntries },
  { id: 'suffixed-paths', run: addSuffixedPaths },
  { id: 'measured-path-slots', run: (db) => dropIndex(db, measured_paths, 'account_1_slot_1') },
  { id: 'retained-parents', run: upgradeRetained },
  { id: 'webhook-formats', run: addWebhookFormats },
  // earlier versions do not mark the hours of streams that come late
  { id: 'stream-summaries', run: async () => undefined },
  // earlier versions do not read the receipts of processes that crashed
  { id: 'deferred-receipts', run: async () => undefined },
];

/** Indexes of collections that are not declared in `resources/`, and those that no declaration yields. */
export const indexes: Indexes = {
  [command.plural]: [commandSlots, ...commandTimes],
  [topic.plural]: [topicSlots],
  [deviceconfig.plural]: [{ key: { shared_content: 1 }, sparse: true }],
  [device.plural]: [
    ...deadlineKinds.map((kind) => ({
      key: reportIndexOf(kind),
      partialFilterExpression: { [`${kind}_safe_until`]: { $gt: 0 } },
    })),
    bySuffixedPath,
  ],
  [model.plural]: [bySuffixedPath],
  removals: [{ key: { account: 1 }, partialFilterExpression: { done: false } }],
  tombstones: [{ key: { object: 1 } }, { key: { account: 1, resource: 1, id_developer: 1 } }, { key: { at: 1 } }],
  mqtt_sessions: [
    { key: { seen_at: 1 }, expireAfterSeconds: session_ttl_s },
    { key: { expires_at: 1 }, expireAfterSeconds: expired_session_ttl_s },
    { key: { instance: 1 } },
  ],
  mqtt_queue: [{ key: { at: 1 }, expireAfterSeconds: session_ttl_s }],
  mqtt_received: [{ key: { at: 1 }, expireAfterSeconds: session_ttl_s }],
  mqtt_wills: [{ key: { instance: 1 } }, { key: { due_at: 1 }, sparse: true }, { key: { session: 1 }, sparse: true }],
  [retainedmessage.plural]: [{ key: { expires_at: 1 }, expireAfterSeconds: 0 }],
  [forwards]: [{ key: { at: 1 }, expireAfterSeconds: forward_ttl_s }],
  stream_rates: streamRateIndexes,
  [streamsummary.plural]: [
    { key: { due_at: 1, account: 1 }, partialFilterExpression: { due_at: { $exists: true } } },
    // ranges have a condition on `parent`, which no index may serve
    { key: { '_id.parent': 1, '_id.at': 1 } },
  ],
  [measured_paths]: [
    { key: { account: 1, path: 1 }, unique: true },
    { key: { fill_at: 1 }, sparse: true },
  ],
  mqttclients: [{ key: { expires_at: 1 }, expireAfterSeconds: 0 }, { key: { owner: 1, seen_at: -1 } }],
};

/** Upgrades data of earlier versions: each migration runs until it has succeeded once. */
export async function migrate(db: DatabaseAccess, context: UpgradeContext): Promise<void> {
  const done = db.collection<{ _id: string; at: Date }>('migrations');
  const finished = new Set((await done.find().toArray()).map(({ _id }) => _id));
  for (const { id, run } of migrations) {
    if (finished.has(id)) continue;
    context.signal.throwIfAborted();
    await context.report(id);
    await run(db, context);
    await done.updateOne({ _id: id }, { $set: { at: new Date() } }, { upsert: true });
  }
}

/** Drops an index that is used no longer. */
async function dropIndex(db: DatabaseAccess, plural: string, name: string): Promise<void> {
  const collection = db.collection(plural);
  if (await collection.indexExists(name)) await collection.dropIndex(name);
}

/** Stores the ids of the objects above each object, level by level from the top. */
async function addAncestors(db: DatabaseAccess): Promise<void> {
  for (const type of resources) {
    const { plural, ancestors, parentCollections } = type;
    if (ancestors.length === 0) continue;
    const collection = db.collection(plural);
    const isMissing = { ancestors: { $exists: false } };
    const lacking = collection.find(isMissing, { projection: { parent: 1 }, batchSize: chunk_size });
    for await (const page of readInBatches(lacking, chunk_size)) {
      const parents = { _id: { $in: page.map(({ parent }) => parent as Id) } };
      const chains = new Map<string, readonly unknown[]>();
      for (const above of Object.values(parentCollections))
        for await (const parentNode of db.collection(above).find(parents, { projection: { ancestors: 1 } }))
          chains.set(String(parentNode._id), [...((parentNode.ancestors as Id[] | undefined) ?? []), parentNode._id]);
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
    const declared = new Set(deriveIndexes(type).map(({ key }) => Object.keys(key).join()));
    for (const { key, name } of await collection.indexes()) {
      const paths = Object.keys(key);
      const isReplaced = (paths[1] ?? '') in parentCollections && !declared.has(paths.join());
      if (isReplaced && name !== undefined) await collection.dropIndex(name);
    }
  }
}

/** Lets search find objects that 0.2.0 has imported under their identifier. */
async function addSearchText(db: DatabaseAccess): Promise<void> {
  const fields = ['name', 'id_developer', 'description'];
  // an update may have left null
  for (const { plural } of resources)
    await setMissing(db, plural, { search_text: null }, fields, (texts) => ({ search_text: buildSearchText(texts) }));
}

/** Sets fields of the objects that lack them, unless they have changed since they were read. */
async function setMissing(
  db: DatabaseAccess,
  plural: string,
  missing: object,
  fields: readonly string[],
  build: (stored: StoredDocument) => object | undefined,
): Promise<void> {
  const collection = db.collection(plural);
  const projection = Object.fromEntries(['version', ...fields].map((field) => [field, 1]));
  const stored = collection.find(missing, { projection, batchSize: chunk_size });
  for await (const page of readInBatches(stored, chunk_size)) {
    const updates = page.flatMap((document) => {
      const { _id, version } = document;
      const $set = build(document);
      return $set === undefined ? [] : [{ updateOne: { filter: { _id, version }, update: { $set } } }];
    });
    if (updates.length > 0) await collection.bulkWrite(updates as never, { ordered: false });
  }
}

/** Marks the devices at which a condition of an alarm rule is met. */
async function markMetConditions(db: DatabaseAccess): Promise<void> {
  const options = { projection: { parent: 1 }, batchSize: chunk_size };
  const met = db.collection(alarm.plural).find({ is_current: true, met: true } as object, options);
  const change = { $set: { condition_met_at: Date.now() / 1000 } };
  for await (const page of readInBatches(met, chunk_size)) {
    const unmarked = { _id: { $in: page.map(({ parent }) => parent as Id) }, condition_met_at: null };
    await db.collection(device.plural).updateMany(unmarked, change);
  }
}

/** Stores the numbers by which lists sort severities. */
async function addGravity(db: DatabaseAccess): Promise<void> {
  for (const { plural } of [alarm, alarmrule])
    for (const severity of severities) {
      const missing = { severity, gravity: { $exists: false } };
      await db.collection(plural).updateMany(missing, { $set: { gravity: gravityOf(severity) } });
    }
}

/** Lets parameters find out which keys of properties end as they do. */
async function addSuffixedPaths(db: DatabaseAccess): Promise<void> {
  const missing = { properties: { $exists: true }, suffixed_paths: { $exists: false } };
  for (const { plural } of [device, model])
    await setMissing(db, plural, missing, ['properties'], ({ properties }) => {
      const suffixed_paths = findSuffixedPaths(properties);
      return suffixed_paths.length === 0 ? undefined : { suffixed_paths };
    });
}

/** Webhooks of before formats are for programs. */
async function addWebhookFormats(db: DatabaseAccess): Promise<void> {
  const change = { $set: { format: 'standard', digest_s: 0 } };
  await db.collection(webhook.plural).updateMany({ format: { $exists: false } } as object, change);
}

const chunk_size = 5000;
