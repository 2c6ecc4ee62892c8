import { takenIdentifier, takenMessage } from '../db/driver-errors.js';
import type { Id } from '../db/ids.js';
import { AppError, createFieldErrors, type FieldErrors, throwIfAny } from '../errors.js';
import type { OperationContext } from '../objects/context.js';
import { assertChangeable } from '../objects/resources.js';
import { findMissing, findNameFault, type References } from '../objects/tree/references.js';
import { assertFewPaths, findPathsByModel } from '../objects/values/measured-paths.js';
import { planChange } from '../objects/write/plan.js';
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
  const faults = Object.assign(
    createFieldErrors(),
    findMissing(resource, values, await findSimulated(ctx, simulation, resource, values)),
    await findTakenName(ctx, simulation, resource, values),
  );
  throwIfAny('invalid', faults);
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
  const { values, version } = parseUpdate(resource, body);
  const references = await findSimulated(ctx, simulation, resource, values);
  const acceptedVersions = version === undefined ? undefined : [version];
  const before = { stored: { ...stored, id_developer: id }, references };
  const plan = planChange(ctx, resource, before, { values, acceptedVersions });
  const faults = plan.kind === 'refuse' ? plan.faults : createFieldErrors();
  throwIfAny('invalid', Object.assign(faults, await findTakenName(ctx, simulation, resource, values, id)));
  if (plan.kind === 'refuse') throw plan.conflict;
  const { set, unset } = plan.change;
  await claimPaths(ctx, simulation, id, unset.includes('filter_paths') ? [] : set.filter_paths);
  simulation.reserve(bytes_per_object);
  if (typeof stored.name === 'string' && typeof set.name === 'string' && set.name !== stored.name)
    simulation.names.set(keyOf(resource, stored.name), null);
  const after: Values = { ...stored, ...set, version: Number(stored.version) + 1 };
  for (const path of unset) delete after[path];
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

/** Finds the objects that `values` refer to, of earlier lines too: of those it is only known that they are there. */
async function findSimulated(
  ctx: OperationContext,
  simulation: Simulation,
  resource: Resource,
  values: Values,
): Promise<References> {
  const references = new Map<string, { _id: Id; ancestors: readonly Id[] }>();
  for (const field of resource.references) {
    const target = { plural: resource.fields[field]?.references?.plural ?? '' };
    const identifier = values[field];
    if (typeof identifier !== 'string') continue;
    const isThere = (await findStored(ctx, simulation, target, identifier)) !== undefined;
    if (isThere) references.set(field, { _id: ctx.store.db.newId(), ancestors: [] });
  }
  return references;
}

/** @returns a fault if another object has the name, or gets it by an earlier line */
async function findTakenName(
  ctx: OperationContext,
  simulation: Simulation,
  resource: Resource,
  values: Values,
  id?: string,
): Promise<FieldErrors> {
  if (!resource.uniqueNames || typeof values.name !== 'string') return {};
  const holder = simulation.names.get(keyOf(resource, values.name));
  if (holder === undefined) return findNameFault(ctx, resource, values, id);
  return holder !== null && holder !== id ? { name: takenMessage } : {};
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
