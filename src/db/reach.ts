import { AppError } from '../errors.js';
import { type LimitField, limitCollections } from '../resources/api-key.js';
import { device } from '../resources/index.js';
import type { Values } from '../schema/fields.js';
import type { ListedType } from '../schema/resource.js';
import { getId, getIds } from '../serialize/bson.js';
import { type Id, readIdTime } from './ids.js';

/** The object that a key is limited to, with everything below it (reference/access.md#limited-keys). */
export interface KeyLimit {
  /** The field that names it. */
  field: LimitField;
  /** Its collection. */
  plural: string;
  _id: Id;
  id_developer: string;
}

/** The part of the data that an operation may see: an account, or one object of it with everything below (reference/access.md#limited-keys). */
export interface Reach {
  account: string;
  /** Undefined: the whole account. */
  limit: KeyLimit | undefined;
}

/** The hierarchy, which limits divide. */
const placedCollections: ReadonlySet<string> = new Set(limitCollections.values());

/** Reports whether objects of a collection have a place in the hierarchy. */
export function isPlaced(plural: string): boolean {
  return placedCollections.has(plural);
}

/** Reports whether a limit leaves an object within reach. What has no place in the hierarchy is decided by its operations. */
export function isWithin(
  limit: KeyLimit | undefined,
  plural: string,
  { _id, ancestors }: { _id: Id; ancestors: readonly Id[] },
): boolean {
  if (limit === undefined || !isPlaced(plural)) return true;
  return limit._id.equals(_id) || ancestors.some((above) => limit._id.equals(above));
}

/** Reports the same of a stored document. */
export function isDocumentWithin(limit: KeyLimit | undefined, plural: string, bson: Uint8Array): boolean {
  if (limit === undefined || !isPlaced(plural)) return true;
  return isWithin(limit, plural, { _id: getId(bson, '_id'), ancestors: getIds(bson, 'ancestors') });
}

/** Reports whether an object is the one that a limit names, not one below it. */
export function isNamed(limit: KeyLimit | undefined, _id: Id): boolean {
  return limit?._id.equals(_id) === true;
}

/** The condition that a limit puts on the objects of a placed type: at most the named one of those not below its level. */
export function buildPlaceCondition(
  limit: KeyLimit | undefined,
  { plural, ancestors }: Pick<ListedType, 'plural' | 'ancestors'>,
): { _id?: Id; ancestors?: Id } {
  if (limit === undefined || !isPlaced(plural)) return {};
  const isBelow = ancestors.some((level) => level.plural === limit.plural);
  return isBelow ? { ancestors: limit._id } : { _id: limit._id };
}

/**
 * Narrows the filter of a list to what a limit leaves. Lists below a device are read after the device was found within reach.
 * @throws AppError forbidden (4031) for types that limited keys may not see
 */
export function limitFilter(
  limit: KeyLimit | undefined,
  listed: ListedType,
  { filter, params }: { filter: Values; params?: Values },
  within: Values = {},
): Values {
  if (limit === undefined || listed.forLimited === 'all') return filter;
  if (isPlaced(listed.plural)) {
    const { _id, ancestors } = buildPlaceCondition(limit, listed);
    return _id === undefined ? { ...filter, ancestors: joinBelow(filter.ancestors, ancestors) } : { ...filter, _id };
  }
  if (typeof listed.forLimited === 'function')
    return { $and: [filter, listed.forLimited({ ...limit, created_ms: readIdTime(limit._id) })] };
  const isOfDevice = listed.parentField === 'device' && listed.parentCollections.device === device.plural;
  // the device of a clustered list was looked up with the limit
  if (isOfDevice && within['_id.device'] !== undefined) return filter;
  if (isOfDevice && limit.plural === device.plural) return { $and: [filter, { device: limit.id_developer }] };
  if (isOfDevice && (within.device ?? params?.device) !== undefined) return filter;
  throw new AppError('forbidden');
}

/** Adds an object to a condition on `ancestors` that `buildBelowCondition` made. */
function joinBelow(condition: unknown, _id: Id | undefined): object {
  const { $eq, $all = [] } = (condition ?? {}) as { $eq?: Id; $all?: readonly Id[] };
  const ids = [...($eq === undefined ? $all : [$eq]), ...(_id === undefined ? [] : [_id])];
  return buildBelowCondition(ids.filter((id, at) => ids.findIndex((other) => other.equals(id)) === at));
}

/** Matches the objects below others, the lowest first, whose index entries are read: the condition on `ancestors`. */
export function buildBelowCondition(ids: readonly Id[]): object {
  return ids.length === 1 ? { $eq: ids[0] } : { $all: ids };
}
