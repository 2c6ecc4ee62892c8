import { takenIdentifier, takenMessage } from '../db/driver-errors.js';
import { AppError, createFieldErrors, type FieldErrors, throwIfAny } from '../errors.js';
import type { OperationContext } from '../objects/context.js';
import { assertChangeable, checkPlace } from '../objects/limits.js';
import { assertFewPaths, findPathsByModel } from '../objects/measured-paths.js';
import { findNameFault } from '../objects/references.js';
import { createConflict, findFormerParents } from '../objects/resources.js';
import { parseUpdate } from '../schema/body.js';
import type { Values } from '../schema/fields.js';
import type { Resource } from '../schema/resource.js';
import { toPlainJson } from '../serialize/plain-json.js';
import type { ImportItem, ImportOutcome, ItemActions } from './import-line.js';

/** Memory of one simulated object, nearly. */
const bytes_per_object = 200;

/** Simulated state of the database: members of objects that decide later lines, and names in use. */
interface Simulation {
  objects: Map<string, Values>;
  /** Identifier of the object with a name; null: the name has become free. */
  names: Map<string, string | null>;
  /** The paths with `filter` of models, those of the lines included; absent before the first line with some. */
  paths?: ReadonlyMap<string, readonly string[]>;
  reserve: (bytes: number) => void;
}

/**
 * Computes the outcome of lines without changing anything (reference/import.md#dry-run).
 * @param reserve accounts for memory; throws AppError overloaded (5033) if there is no more
 */
export function simulateItems(reserve: Simulation['reserve']): ItemActions<Values> {
  const simulation: Simulation = { objects: new Map(), names: new Map(), reserve };
  return {
    find: (ctx, resource, id) => findStored(ctx, simulation, resource, id),
    create: (ctx, item, values) => simulateCreate(ctx, simulation, item, values),
    update: (ctx, item, found) => simulateUpdate(ctx, simulation, item, found),
  };
}

const keyOf = ({ plural }: { plural: string }, id: string) => `${plural} ${id}`;

async function findStored(
  ctx: OperationContext,
  { objects }: Simulation,
  { plural }: { plural: string },
  id: string,
): Promise<Values | undefined> {
  const simulated = objects.get(keyOf({ plural }, id));
  if (simulated !== undefined) return simulated;
  const document = await ctx.store.loader(plural).find(ctx, id);
  return document && toPlainJson(document);
}

/** Reports whether the account has an object of this identifier, also out of reach. */
async function isTaken(
  ctx: OperationContext,
  simulation: Simulation,
  resource: Resource,
  id: string,
): Promise<boolean> {
  return (await findStored({ ...ctx, limit: undefined }, simulation, resource, id)) !== undefined;
}

async function simulateCreate(
  ctx: OperationContext,
  simulation: Simulation,
  { resource, id }: ImportItem,
  values: Values,
): Promise<ImportOutcome> {
  const isOutOfReach = id !== undefined && (await isTaken(ctx, simulation, resource, id));
  await throwFaults(ctx, simulation, resource, values, createFieldErrors());
  if (isOutOfReach) throw new AppError('invalid', { name: takenIdentifier });
  const id_developer = id ?? (await findFreeIdentifier(ctx, simulation, resource, String(values.name)));
  if (id_developer === undefined) return { code: 2001 };
  const { set } = resource.toStored(values, { now: ctx.now, creating: true });
  await claimPaths(ctx, simulation, id_developer, set.filter_paths);
  simulation.reserve(bytes_per_object);
  remember(simulation, resource, id_developer, { ...set, version: 0 });
  return { code: 2001, id_developer };
}

async function simulateUpdate(
  ctx: OperationContext,
  simulation: Simulation,
  { resource, body }: ImportItem,
  { id, stored }: { id: string; stored: Values },
): Promise<void> {
  assertChangeable(ctx, resource);
  const { values: sent, version } = parseUpdate(resource, body);
  const values = checkPlace(ctx, resource, { ...stored, id_developer: id }, sent);
  const { set, unset, faults } = resource.toStored(values, { now: ctx.now, stored });
  const formerParents = findFormerParents(resource, values, stored, faults);
  await throwFaults(ctx, simulation, resource, values, faults, id);
  if (version !== undefined && version !== stored.version)
    throw createConflict(resource, [version], Number(stored.version));
  await claimPaths(ctx, simulation, id, unset.includes('filter_paths') ? [] : set.filter_paths);
  simulation.reserve(bytes_per_object);
  if (typeof stored.name === 'string' && typeof set.name === 'string' && set.name !== stored.name)
    simulation.names.set(keyOf(resource, stored.name), null);
  const after: Values = { ...stored, ...set, version: Number(stored.version) + 1 };
  for (const path of [...unset, ...formerParents]) delete after[path];
  remember(simulation, resource, id, after);
}

/** @throws AppError invalid (4003) if the account would have too many paths after a line */
async function claimPaths(
  ctx: OperationContext,
  simulation: Simulation,
  id: string,
  filter_paths: unknown,
): Promise<void> {
  if (!Array.isArray(filter_paths)) return;
  const after = new Map(simulation.paths ?? (await findPathsByModel(ctx.store.db, ctx.account))).set(
    id,
    filter_paths as string[],
  );
  assertFewPaths([...after.values()]);
  simulation.paths = after;
}

/** Keeps the members that decide what later lines of the object answer. */
function remember({ objects, names }: Simulation, resource: Resource, id: string, stored: Values): void {
  const kept: Values = {};
  for (const key of ['name', 'version', 'location', 'enabled', ...resource.parents])
    if (stored[key] !== undefined) kept[key] = stored[key];
  objects.set(keyOf(resource, id), kept);
  if (resource.uniqueNames) names.set(keyOf(resource, String(stored.name)), id);
}

/** @throws AppError invalid (4003) with `faults`, missing references and a taken name */
async function throwFaults(
  ctx: OperationContext,
  simulation: Simulation,
  resource: Resource,
  values: Values,
  faults: FieldErrors,
  id?: string,
): Promise<void> {
  for (const field of resource.references) {
    const target = { plural: resource.fields[field]?.references?.plural ?? '' };
    const identifier = values[field];
    if (typeof identifier !== 'string') continue;
    if ((await findStored(ctx, simulation, target, identifier)) === undefined) faults[field] = 'does not exist';
  }
  if (resource.uniqueNames && typeof values.name === 'string') {
    const holder = simulation.names.get(keyOf(resource, values.name));
    if (holder === undefined) Object.assign(faults, await findNameFault(ctx, resource, values, id));
    else if (holder !== null && holder !== id) faults.name = takenMessage;
  }
  throwIfAny('invalid', faults);
}

/** Numbers up to this one are predicted; higher ones depend on a counter in the database. */
const max_predicted_number = 64;

/** @returns the identifier that a new device would get (reference/identifiers.md#names); undefined if it is not predictable */
async function findFreeIdentifier(
  ctx: OperationContext,
  simulation: Simulation,
  resource: Resource,
  name: string,
): Promise<string | undefined> {
  for (let number = 1; number <= max_predicted_number; number++) {
    const id = `${name}${number === 1 ? '' : `-${number}`}@${ctx.account}`;
    if (!(await isTaken(ctx, simulation, resource, id))) return id;
  }
  return undefined;
}
