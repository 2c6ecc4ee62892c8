import type { mongo } from 'mongoose';
import type { Database } from '../db/database.js';
import { type Id, keyOfId } from '../db/ids.js';
import { findMany } from '../db/raw-find.js';
import { type DesiredConfig, selectConfig } from '../device-state/changes.js';
import { updateStates } from '../device-state/store.js';
import { AppError } from '../errors.js';
import { splitIntoBatches } from '../lib/batches.js';
import { type BulkAction, deleteOrphans } from '../objects/bulk/action.js';
import { deviceconfig, devicestate } from '../resources/index.js';
import type { Values } from '../schema/fields.js';
import { store_action } from './contents.js';
import { buildConfig } from './store.js';

/** Files of one write. */
const max_documents = 250;

/** Gives many devices the same version of a file. A device that has it with this content is left alone. */
export const storeConfigs: BulkAction = {
  name: store_action,
  async check({ store }, devices, values) {
    assertSame(await findVersions(store.db, devices, values), values);
  },
  async apply(ctx, values, devices, { session, skipsInvalid }) {
    const ids = devices.map(({ _id }) => _id);
    const stored = await findVersions(ctx.store.db, ids, values, session);
    if (!skipsInvalid) assertSame(stored, values);
    const documents = devices
      .filter(({ _id }) => !stored.has(keyOfId(_id)))
      .map((owner) => buildConfig(ctx, owner, values));
    const files = ctx.store.db.collection(deviceconfig.plural);
    for (const batch of splitIntoBatches(documents, max_documents))
      await files.insertMany([...batch], { session, ordered: false });
    return documents.length;
  },
  finish: (ctx, devices) => deleteOrphans(ctx, deviceconfig.plural, devices),
};

/** Makes a version of a file the desired one of many devices, or none: then devices without the file are left alone. */
export const selectConfigs: BulkAction = {
  name: 'desired-configs',
  async check({ store }, devices, values) {
    if (values.version !== null) assertComplete(await findVersions(store.db, devices, values), devices);
  },
  async apply(ctx, values, devices, { session, skipsInvalid }) {
    const { db } = ctx.store;
    const ids = devices.map(({ _id }) => _id);
    const stored = await findVersions(db, ids, values, session);
    if (values.version !== null && !skipsInvalid) assertComplete(stored, ids);
    const versionOf = ({ _id }: { _id: Id }) => stored.get(keyOfId(_id));
    const owners = devices.filter((node) => versionOf(node) !== undefined);
    const states = owners.map(({ _id, id }) => ({ _id, account: ctx.account, id_developer: id }));
    const options = { session, skipsInvalid };
    const select: Parameters<typeof updateStates>[2] = (state, owner) =>
      selectConfig(state, String(values.name), values.version === null ? undefined : versionOf(owner), ctx);
    return updateStates(db, states, select, options);
  },
  finish: (ctx, devices) => deleteOrphans(ctx, devicestate.plural, devices),
};

/** Finds a version of a file, or any if it is null, by device. */
async function findVersions(
  db: Database,
  devices: readonly Id[],
  { name, version }: Values,
  session?: mongo.ClientSession,
): Promise<ReadonlyMap<string, DesiredConfig>> {
  const filter = { parent: { $in: devices }, name, ...(version !== null && { version }) };
  const projection = { parent: 1, version: 1, size: 1, checksum: 1 };
  const options = { projection, ...(session && { session }) };
  const found = await findMany(db.collection(deviceconfig.plural), filter, options);
  return new Map(
    found.map(({ parent, version: stored, size, checksum }) => [
      keyOfId(parent as Id),
      { version: String(stored), size: Number(size), checksum: String(checksum) },
    ]),
  );
}

/** @throws AppError invalid (4003) if a device has this version with other content */
function assertSame(stored: ReadonlyMap<string, DesiredConfig>, { size, checksum }: Values): void {
  const isSame = (config: DesiredConfig) => config.size === size && config.checksum === checksum;
  if (![...stored.values()].every(isSame)) throw new AppError('invalid', { version: 'exists with other content' });
}

/** @throws AppError invalid (4003) if a device does not have the version */
function assertComplete(stored: ReadonlyMap<string, DesiredConfig>, devices: readonly Id[]): void {
  if (stored.size < devices.length) throw new AppError('invalid', { version: 'does not exist for every device' });
}
