import { AppError } from '../../errors.js';
import type { Resource } from '../../schema/resource.js';
import type { OperationContext } from '../context.js';
import { ignoreNotFound, isBeingRemoved, removeTree, replayRemovals } from '../tree/cascade-delete.js';
import { alignBelow } from '../tree/moves.js';
import { type ChangedReferences, findChangedReferences, type References } from '../tree/references.js';

/** A create or an update that was written. */
interface Written {
  id: string;
  /** The objects that it relied on. */
  references: References;
  /** Gives a field its former value; absent: the object is new. */
  restore?: (field: string) => Promise<void>;
}

/**
 * Verifies what a write relied on, as that may have changed between the look-up and the write: an object below a removed parent is
 * removed, a removed model is detached, a moved parent takes the object along.
 * @throws AppError invalid (4003) for a write that came too late to protect what it names, after it was taken back
 */
export async function verifyAfterwards(
  ctx: OperationContext,
  resource: Resource,
  { id, references, restore }: Written,
): Promise<void> {
  // the removal of the parent may have deleted the object already
  const remove = () => removeTree(ctx, resource, id).catch(ignoreNotFound);
  // before the objects are read again: one that is removed in between is missing then
  const removing = await findBeingRemoved(ctx, resource, references);
  const { missing, movedParent } = await findChangedReferences(ctx, resource, references);
  const unprotected = [...removing, ...missing].find((field) => isProtecting(resource, field));
  if (unprotected !== undefined) {
    await (restore?.(unprotected) ?? remove());
    throw new AppError('invalid', { [unprotected]: 'does not exist' });
  }
  if ([...resource.parents, ...resource.owners].some((field) => missing.includes(field))) await remove();
  else await followReferences(ctx, references, { missing, movedParent });
}

/** Repeats the removal of objects that were referred to, and aligns what is below a moved parent. */
export async function followReferences(
  { store }: OperationContext,
  references: References,
  { missing, movedParent }: ChangedReferences,
): Promise<void> {
  if (missing.length > 0) await replayRemovals(store, [...references.values()]);
  if (movedParent !== undefined) await alignBelow(store, movedParent.plural, movedParent._id);
}

function isProtecting({ fields }: Resource, field: string): boolean {
  return fields[field]?.references?.protects === true;
}

/** @returns fields whose object others protect and whose removal is under way */
async function findBeingRemoved({ store }: OperationContext, resource: Resource, references: References) {
  const removing: string[] = [];
  for (const [field, { _id }] of references)
    if (isProtecting(resource, field) && (await isBeingRemoved(store, _id))) removing.push(field);
  return removing;
}
