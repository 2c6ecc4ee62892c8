import type { mongo } from 'mongoose';
import { StartError } from '../errors.js';
import { ignore } from '../lib/promises.js';
import { data_version, version } from '../lib/version.js';
import { isDuplicate } from './driver-errors.js';

/** Version of stored data, on which all instances agree before they write (docs/decisions/0030-one-gate.md). */
interface DataVersion {
  _id: 'data-version';
  number: number;
  /** Version of the service that brought it. */
  release: string;
  /** Progress of the upgrade; absent once it is complete. */
  upgrade?: string;
}

/** Beside the names of completed migrations, as all of it is in a backup. */
const recordsIn = (db: mongo.Db) => db.collection<DataVersion>('migrations');
const _id = 'data-version';

/** @returns undefined for data of versions before 0.3.0, and where there is none @throws StartError for data of a later version */
export async function readDataVersion(db: mongo.Db): Promise<DataVersion | undefined> {
  const stored = (await recordsIn(db).findOne({ _id }, { maxTimeMS: 2000 })) ?? undefined;
  if (stored === undefined || stored.number <= data_version) return stored;
  throw new StartError(
    `the data is of version ${stored.release}, which this version ${version} cannot use; going back means restoring the backup made before the upgrade`,
  );
}

/** Reports whether nothing has been stored by any version. */
export async function isNewDatabase(db: mongo.Db): Promise<boolean> {
  return (await recordsIn(db).findOne({}, { projection: { _id: 1 } })) === null;
}

/** Reports whether this version can work with the data. */
export function isCurrent(stored: DataVersion | undefined): boolean {
  return stored?.number === data_version && stored.upgrade === undefined;
}

/** Makes instances of earlier versions stop. */
export async function beginUpgrade(db: mongo.Db): Promise<void> {
  const $set = { number: data_version, release: version, upgrade: '' };
  await recordsIn(db)
    .updateOne({ _id, number: { $ne: data_version } }, { $set }, { upsert: true })
    // begun before
    .catch(ignore(isDuplicate));
}

/** Shows the progress to all instances. */
export async function reportUpgrade(db: mongo.Db, upgrade: string): Promise<void> {
  await recordsIn(db).updateOne({ _id, upgrade: { $exists: true } }, { $set: { upgrade } });
}

/** Opens the data to this version. */
export async function endUpgrade(db: mongo.Db): Promise<void> {
  await recordsIn(db).updateOne({ _id, number: data_version }, { $unset: { upgrade: 1 } });
}
