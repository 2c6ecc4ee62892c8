import type { mongo } from 'mongoose';
import { ignore } from '../lib/promises.js';
import { isExistingNamespace, isMissingNamespace } from './driver-errors.js';

/**
 * Collections that versions before 0.3.0 know by another name, where they find a view that refuses them. Each of their requests,
 * MQTT logins, leased jobs and maintenances begins with one (docs/decisions/0030-one-gate.md). Keys come first: without
 * them the check of MQTT sessions fails, which else would find no credentials for a moment and delete the sessions.
 */
const movedCollections: ReadonlyMap<string, string> = new Map([
  ['apikeys', 'keys'],
  ['mqttcredentials', 'mqtt_credentials'],
  ['leases', 'held_leases'],
  ['removals', 'removal_journal'],
]);

/** Written by version 0.2.0 before anything else; later versions have no such collection. */
const instances = 'instances';

/** Returns the name of a collection in the database. */
export function storedNameOf(collection: string): string {
  return movedCollections.get(collection) ?? collection;
}

/** Replaces the names of collections in a command: they come first, or are called `collection`. */
export function storedCommandOf(command: mongo.BSON.Document): mongo.BSON.Document {
  const renamed = Object.entries(command).map(([key, value], index) => {
    const isName = typeof value === 'string' && (index === 0 || key === 'collection');
    return [key, isName ? storedNameOf(value) : value];
  });
  return Object.fromEntries(renamed);
}

/** Makes reads from the view fail with this text; writes fail because it is a view. */
const refusal = [
  {
    $match: { $expr: { $toInt: 'this database belongs to version 0.3.0 or later, which earlier versions cannot use' } },
  },
];

/**
 * Takes away what versions before 0.3.0 need to read and write; nothing else stops them. May be repeated, also by several
 * instances at once. @returns whether they could use the database until now
 */
export async function lockOutFormerVersions(db: mongo.Db): Promise<boolean> {
  let isFirst = false;
  for (const name of [...movedCollections.keys(), instances]) if (await replaceByView(db, name)) isFirst = true;
  return isFirst;
}

async function replaceByView(db: mongo.Db, name: string): Promise<boolean> {
  for (let isReplaced = false; ; isReplaced = true) {
    const view = await db
      .createCollection(name, { viewOn: 'nothing', pipeline: refusal })
      .catch(ignore(isExistingNamespace));
    if (view !== undefined) return isReplaced;
    const [found] = await db.listCollections({ name }).toArray();
    if (found?.type === 'view') return isReplaced;
    await moveAway(db, name, movedCollections.get(name));
  }
}

/** Renames a collection, or adds its documents to those that were moved before. */
async function moveAway(db: mongo.Db, name: string, target: string | undefined): Promise<void> {
  try {
    if (target === undefined) await db.dropCollection(name);
    else await db.renameCollection(name, target);
  } catch (error) {
    if (isMissingNamespace(error)) return;
    if (target === undefined || !isExistingNamespace(error)) throw error;
    // written by an earlier version between the renaming and the view
    await db
      .collection(name)
      .aggregate([{ $merge: { into: target, whenMatched: 'keepExisting' } }])
      .toArray();
    await db.dropCollection(name);
  }
}
