import type { mongo } from 'mongoose';
import { type Database, read_limit_ms } from '../db/database.js';
import { chooseSlot, describeFull } from '../db/free-slot.js';
import type { Id } from '../db/ids.js';
import { findAll } from '../db/raw-find.js';
import { keyOfId } from '../objects/ancestors.js';
import type { BulkAction } from '../objects/bulk/action.js';
import { device } from '../resources/index.js';
import { commandsOf, createBuilder, isOpen, limited } from './store.js';

/** Commands of one write: their data may be 32 KiB each. */
const max_documents = 100;

/** Queues the same command for many devices. */
export const queueCommands: BulkAction = {
  name: 'commands',
  async check({ store }, devices) {
    for (const taken of (await findTakenSlots(store.db, devices)).values())
      if (chooseSlot(taken) === undefined) throw describeFull(limited);
  },
  async apply(ctx, values, devices, { session, skipsInvalid }) {
    const { db } = ctx.store;
    const ids = devices.map(({ _id }) => _id);
    const takenSlots = await findTakenSlots(db, ids, session);
    const build = createBuilder(ctx, values);
    const documents = devices.flatMap(({ _id, id }) => {
      const slot = chooseSlot(takenSlots.get(keyOfId(_id)) ?? new Set());
      if (slot !== undefined) return [build(_id, id, slot)];
      if (skipsInvalid) return [];
      throw describeFull(limited);
    });
    for (let from = 0; from < documents.length; from += max_documents)
      await commandsOf(db).insertMany(documents.slice(from, from + max_documents), { session, ordered: false });
    return documents.length;
  },
  async finish({ store }, devices) {
    const filter = { _id: { $in: devices } };
    const query = { filter, projection: { _id: 1 }, maxTimeMS: read_limit_ms };
    const existing = await findAll(store.db.collection(device.plural), query);
    const keys = new Set(existing.map(({ _id }) => keyOfId(_id)));
    const deleted = devices.filter((id) => !keys.has(keyOfId(id)));
    if (deleted.length > 0) await commandsOf(store.db).deleteMany({ parent: { $in: deleted } });
  },
};

/** Finds the slots that the open commands of devices take, by device. */
async function findTakenSlots(
  db: Database,
  devices: readonly Id[],
  session?: mongo.ClientSession,
): Promise<Map<string, Set<number>>> {
  const slots = commandsOf(db).aggregate<{ _id: Id; slots: number[] }>(
    [{ $match: { parent: { $in: devices }, ...isOpen } }, { $group: { _id: '$parent', slots: { $push: '$slot' } } }],
    { hint: { parent: 1, slot: 1 }, maxTimeMS: read_limit_ms, ...(session && { session }) },
  );
  const taken = new Map<string, Set<number>>();
  for await (const { _id, slots: ofDevice } of slots) taken.set(keyOfId(_id), new Set(ofDevice));
  return taken;
}
