import { createFieldErrors, type FieldErrors, throwIfAny } from '../errors.js';
import { parseDataPath } from '../schema/data-path.js';
import { freeform } from '../schema/fields/freeform.js';
import { isPlainObject } from '../schema/fields/object.js';
import type { Values } from '../schema/fields.js';
import { configsMember, mergePatch } from './delta.js';

/** One of the two sides of the state of a device. */
export type Side = 'desired' | 'reported';

/** Bytes of one side as compact JSON. */
const max_side_bytes = 32 * 1024;

/** The values of a side, as `properties` (reference/identifiers.md#free-form-objects). */
const sideType = freeform({ levels: 5 });

/** Checks a whole side. @throws AppError invalid (4003) */
export function checkSide(side: Side, value: Values): void {
  const faults = createFieldErrors();
  sideType.body(value, side, faults);
  if (Buffer.byteLength(JSON.stringify(value)) > max_side_bytes) faults[side] ??= 'must not be larger than 32 KiB';
  if (side === 'reported') checkRejected(value.rejected, faults);
  throwIfAny('invalid', faults);
}

/**
 * Checks a merge patch by itself: what it adds to an empty side it adds to every side. @throws AppError invalid (4003)
 */
export function checkPatch(side: Side, patch: Values): void {
  const faults = createFieldErrors();
  if (side === 'desired' && Object.hasOwn(patch, configsMember))
    faults[configsMember] = 'is changed by PUT …/deviceconfigs/{name}/desired/';
  if (!hasWellFormedKeys(patch)) faults[side] = 'must hold well-formed text without NUL';
  throwIfAny('invalid', faults);
  checkSide(side, mergePatch({}, patch));
}

function checkRejected(rejected: unknown, faults: FieldErrors): void {
  if (rejected === undefined) return;
  const isValid =
    isPlainObject(rejected) &&
    Object.entries(rejected).every(([path, text]) => parseDataPath(path) !== undefined && typeof text === 'string');
  if (!isValid) faults.rejected = 'must be an object of texts by path';
}

/** Checks the keys that a patch removes, which no side shows. */
function hasWellFormedKeys(patch: Values): boolean {
  return Object.entries(patch).every(
    ([key, value]) => key.isWellFormed() && !key.includes('\0') && (!isPlainObject(value) || hasWellFormedKeys(value)),
  );
}
