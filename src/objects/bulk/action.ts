import type { mongo } from 'mongoose';
import { type Id, keyOfId } from '../../db/ids.js';
import { findAll } from '../../db/raw-find.js';
import { device } from '../../resources/index.js';
import type { Values } from '../../schema/fields.js';
import type { OperationContext } from '../context.js';
import type { NodeRef } from '../tree/removed-nodes.js';

/** An action that a bulk change runs for each object instead of changing it. */
export interface BulkAction {
  /** Names it in the journal. */
  name: string;
  /** @throws AppError invalid (4003) if it cannot be carried out for one of the objects */
  check(ctx: OperationContext, objects: readonly Id[], values: Values): Promise<void>;
  /** Carries it out in a transaction. @returns for how many @throws AppError invalid (4003) unless `skipsInvalid` */
  apply(
    ctx: OperationContext,
    values: Values,
    objects: readonly NodeRef[],
    options: { session: mongo.ClientSession; skipsInvalid: boolean },
  ): Promise<number>;
  /** Follows the commit: undoes it for objects that were deleted at the same time. */
  finish(ctx: OperationContext, objects: readonly Id[]): Promise<void>;
}

/** Deletes what an action has stored below devices that were deleted at the same time. */
export async function deleteOrphans(
  { store: { db } }: OperationContext,
  plural: string,
  devices: readonly Id[],
): Promise<void> {
  const query = { filter: { _id: { $in: devices } }, projection: { _id: 1 } };
  const existing = await findAll(db.collection(device.plural), query);
  const keys = new Set(existing.map(({ _id }) => keyOfId(_id)));
  const deleted = devices.filter((id) => !keys.has(keyOfId(id)));
  if (deleted.length > 0) await db.collection(plural).deleteMany({ parent: { $in: deleted } });
}
