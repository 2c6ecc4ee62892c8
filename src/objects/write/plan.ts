import type { Id } from '../../db/ids.js';
import { AppError, createFieldErrors, type FieldErrors } from '../../errors.js';
import type { UpdateRequest } from '../../schema/body.js';
import type { Values } from '../../schema/fields.js';
import type { Resource, StoredChange } from '../../schema/resource.js';
import type { OperationContext } from '../context.js';
import { keepPlace } from '../resources.js';
import { isSameChain } from '../tree/ancestors.js';
import { hasDescendants } from '../tree/moves.js';
import { findMissing, type References } from '../tree/references.js';

/** An object as it is stored, and what decides with it whether and how it may change. */
export interface ObjectBefore {
  stored: Values;
  /** Internal ids of the objects above it, from the top. */
  ancestors?: readonly Id[];
  /** A move of it has not reached all that is below it. */
  isBeingMoved?: boolean;
  /** The objects that it refers to, without parents, by field. */
  linked?: Readonly<Record<string, Values>>;
  /** The objects that the new values refer to, by field; those that exist. */
  references: References;
}

/** A validated update. */
export interface UpdateInput extends Pick<UpdateRequest, 'values'> {
  /** Versions that may be changed; undefined: any. */
  acceptedVersions: readonly number[] | undefined;
}

/** The outcome of planning an update: one write, the same with a move of all that is below, or a refusal. */
export type ChangePlan =
  | { kind: 'write' | 'move'; change: Omit<StoredChange, 'faults'> }
  /** `faults` are invalid (4003). Without any, and unless the name is taken, it is the conflict. */
  | { kind: 'refuse'; faults: FieldErrors; conflict: AppError | undefined };

/**
 * Plans an update from what was loaded (reference/resources.md#update), without looking anything up.
 * @throws AppError forbidden (4031) if the object that the operation is limited to would move
 */
export function planChange(
  { limit, now }: Pick<OperationContext, 'limit' | 'now'>,
  resource: Resource,
  { stored, ancestors = [], isBeingMoved = false, linked = {}, references }: ObjectBefore,
  { values: wanted, acceptedVersions }: UpdateInput,
): ChangePlan {
  const values = keepPlace(limit, resource, stored, wanted);
  const { set, unset, faults: valueFaults, precondition } = resource.toStored(values, { now, stored, linked });
  const faults = Object.assign(createFieldErrors(), valueFaults);
  const formerParents = findFormerParents(resource, values, stored, faults);
  Object.assign(faults, findMissing(resource, values, references));
  const version = Number(stored.version);
  const isAccepted = acceptedVersions?.includes(version) ?? true;
  const conflict = isAccepted ? undefined : createConflict(resource, acceptedVersions, version);
  if (conflict !== undefined || Object.keys(faults).length > 0) return { kind: 'refuse', faults, conflict };
  const place = placeBelow(resource, references);
  const isElsewhere = place.ancestors !== undefined && !isSameChain(ancestors, place.ancestors);
  const isMove = hasDescendants(resource) && (isElsewhere || isBeingMoved);
  return {
    kind: isMove ? 'move' : 'write',
    change: {
      set: { ...set, ...place },
      unset: [...unset, ...formerParents],
      precondition: { version, ...precondition },
    },
  };
}

/** The stored fields that place an object below the parent, or with the owner, among `references`; empty without one. */
export function placeBelow(
  { parents, owners }: Pick<Resource, 'parents' | 'owners'>,
  references: References,
): { parent?: Id; ancestors?: readonly Id[] } {
  const field = [...parents, ...owners].find((parent) => references.has(parent));
  const node = field === undefined ? undefined : references.get(field);
  if (field === undefined || node === undefined) return {};
  return { parent: node._id, ...(parents.includes(field) && { ancestors: [...node.ancestors, node._id] }) };
}

/** @returns the fields of the former parents, to unset on a move. Adds a fault if the only parent would be unset */
function findFormerParents({ parents }: Resource, values: Values, stored: Values, faults: FieldErrors): string[] {
  if (parents.length < 2) return [];
  const newParent = parents.find((field) => typeof values[field] === 'string');
  if (newParent !== undefined) return parents.filter((field) => field !== newParent);
  for (const field of parents) {
    if (values[field] === null && stored[field] !== undefined)
      faults[field] = `exactly one of ${parents.join(' and ')} must be given`;
  }
  return [];
}

/** Creates error 4005 with the stored version as a number, or as a message (reference/resources.md#concurrency). */
function createConflict({ legacy }: Resource, sent: readonly number[] | undefined, stored: number): AppError {
  const version = legacy.hasConflictMessage ? `the stored version is ${stored}` : stored;
  return new AppError('conflict', { version }, { logged: { sent, stored } });
}
