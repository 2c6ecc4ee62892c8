import type { mongo } from 'mongoose';
import type { Database } from '../db/database.js';
import { chooseSlot, describeFull } from '../db/free-slot.js';
import { type Id, keyOfId } from '../db/ids.js';
import { runPipeline } from '../db/raw-find.js';
import { splitIntoBatches } from '../lib/batches.js';
import { type BulkAction, deleteOrphans } from '../objects/bulk/action.js';
import { max_documents } from '../objects/bulk/change.js';
import { command } from '../resources/index.js';
import { commandsOf, createBuilder, isOpen, limited } from './store.js';

/** Queues the same command for many devices. */
export const queueCommands: BulkAction = {
  name: 'commands',
  async check({ store }, devices) {
    for (const { slots } of (await findOpen(store.db, devices)).values())
      if (chooseSlot(slots) === undefined) throw describeFull(limited);
  },
  async apply(ctx, values, devices, { session, skipsInvalid }) {
    const { db } = ctx.store;
    const ids = devices.map(({ _id }) => _id);
    const open = await findOpen(db, ids, session);
    const build = createBuilder(ctx, values);
    const documents = devices.flatMap(({ _id, id }) => {
      const { slots, last } = open.get(keyOfId(_id)) ?? none;
      const slot = chooseSlot(slots);
      if (slot !== undefined) return [build(_id, id, slot, last)];
      if (skipsInvalid) return [];
      throw describeFull(limited);
    });
    const bytes = Buffer.byteLength(JSON.stringify(values));
    for (const batch of splitIntoBatches(documents, max_documents, () => bytes))
      await commandsOf(db).insertMany([...batch], { session, ordered: false });
    return documents.length;
  },
  finish: (ctx, devices) => deleteOrphans(ctx, command.plural, devices),
};

interface OpenCommands {
  slots: ReadonlySet<number>;
  /** The id of the last one. */
  last: readonly Id[];
}

const none: OpenCommands = { slots: new Set(), last: [] };

async function findOpen(
  db: Database,
  devices: readonly Id[],
  session?: mongo.ClientSession,
): Promise<ReadonlyMap<string, OpenCommands>> {
  const pipeline = [
    { $match: { parent: { $in: devices }, ...isOpen } },
    { $group: { _id: '$parent', slots: { $push: '$slot' }, last: { $max: '$_id' } } },
  ];
  const options = { hint: { parent: 1, slot: 1 }, ...(session && { session }) };
  const rows = await runPipeline<{ _id: Id; slots: number[]; last: Id }>(commandsOf(db), pipeline, options);
  return new Map(rows.map(({ _id, slots, last }) => [keyOfId(_id), { slots: new Set(slots), last: [last] }]));
}
