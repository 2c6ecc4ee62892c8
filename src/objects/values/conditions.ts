import { setTimeout as sleep } from 'node:timers/promises';
import type { StoredObject } from '../../db/database.js';
import type { Id } from '../../db/ids.js';
import { findMany } from '../../db/raw-find.js';
import { AppError, createFieldErrors, type FieldErrors, throwIfAny } from '../../errors.js';
import { device, devicevalue } from '../../resources/index.js';
import type { Measure } from '../../resources/measure.js';
import { model } from '../../resources/model.js';
import { parseDataPath, spellingsOf } from '../../schema/data-path.js';
import type { Values } from '../../schema/fields.js';
import type { ListRequest } from '../../schema/list-parameters.js';
import { type NamedPath, readExact } from '../../schema/path-filters.js';
import { buildInheritedFilter, type LookUpScope } from '../select/path-filters.js';
import { buildStateConditions, type RelatedCondition } from '../select/related-devices.js';
import { findDeclared, type MeasuredPath, measuredPathsOf } from './measured-paths.js';
import type { Scalar } from './values.js';

/** A path that has just been declared is filled within 3 s, unless there are many streams. */
const fill_wait_ms = 3500;
const fill_pause_ms = 100;

/** Kinds of values, in the order of lists. */
export const kinds = ['number', 'text', 'boolean'] as const;
type Kind = (typeof kinds)[number];

/** A path by whose last values devices are compared. */
export interface ComparedPath {
  /** Internal id of the path. */
  path: Id;
  /** The models that declare another kind of values, by kind: values of that kind of their devices count as none. */
  otherKinds: Readonly<Record<Kind, readonly string[]>>;
}

/**
 * Finds the measured paths that parameters name. A path that has just been declared is waited for.
 * @returns by JSON Pointer @throws AppError badParameter (4004) for paths that no measure with `filter` has,
 * database (5031) while the values at one are being read from many stored streams
 */
async function findComparedPaths(
  scope: LookUpScope,
  named: readonly NamedPath[],
): Promise<ReadonlyMap<string, ComparedPath>> {
  await assertDeclared(scope, named);
  const filter = { account: scope.account, path: { $in: named.map(({ pointer }) => pointer) } };
  const end = performance.now() + fill_wait_ms;
  let filled: readonly MeasuredPath[] = [];
  const isIncomplete = ({ pointer }: NamedPath) => !filled.some(({ path }) => path === pointer);
  for (;;) {
    const stored = await findMany(measuredPathsOf(scope.store.db), filter);
    filled = stored.filter(({ fill_at }) => fill_at === undefined);
    if (!named.some(isIncomplete) || performance.now() > end) break;
    await sleep(fill_pause_ms);
  }
  if (named.some(isIncomplete))
    throw new AppError('database', describe(named, isIncomplete, 'is not complete yet: stored streams are being read'));
  const compared = await Promise.all(
    filled.map(async ({ _id, path }) => [path, { path: _id, otherKinds: await findOtherKinds(scope, path) }] as const),
  );
  return new Map(compared);
}

/** Asserts that measures with `filter` have the paths of values. @throws AppError badParameter (4004) */
export async function assertDeclared(
  { store: { db }, account }: LookUpScope,
  compared: readonly NamedPath[],
): Promise<void> {
  const named = compared.filter(isOfValues);
  const pointers = named.map(({ pointer }) => pointer);
  const declared = await findDeclared(db, account, [...new Set(pointers)]);
  const isUndeclared = ({ pointer }: NamedPath) => !declared.has(pointer);
  throwIfAny('badParameter', describe(named, isUndeclared, 'is the path of no measure with filter'));
}

const isOfValues = ({ member }: NamedPath) => member === 'latest';

function describe(named: readonly NamedPath[], isWrong: (path: NamedPath) => boolean, fault: string): FieldErrors {
  const faults = createFieldErrors();
  for (const path of named) if (isWrong(path)) faults[path.param] = fault;
  return faults;
}

/** The conditions of a request that look-ups decide, and the path by whose values it is sorted. */
interface PreparedConditions {
  /** On properties. */
  filters: Values[];
  /** On alarms, configuration files and last values. */
  related: RelatedCondition[];
  order?: ComparedPath | undefined;
}

/** Prepares the conditions of a request of devices. Both ends of a range are one. @throws as `findComparedPaths` */
export async function prepareConditions(scope: LookUpScope, request: ListRequest): Promise<PreparedConditions> {
  const { paths: compared = [], pathSort } = request;
  const related = buildStateConditions(scope, request);
  const [named, others] = [compared.filter(isOfValues), compared.filter((path) => !isOfValues(path))];
  const filters = await Promise.all(others.map((path) => buildInheritedFilter(scope, device, path)));
  if (named.length === 0 && pathSort === undefined) return { filters, related };
  const paths = await findComparedPaths(scope, [...named, ...(pathSort ? [pathSort] : [])]);
  const ranges = new Map<string, object>();
  for (const { pointer, param, operand } of named) {
    const { path, otherKinds } = paths.get(pointer) ?? {};
    const add = (values: readonly [Kind, object][]) => {
      const alternatives = values.map(([kind, value]) => ({
        filter: { path, value },
        excluded_models: otherKinds?.[kind] ?? [],
      }));
      related.push({ param, plural: devicevalue.plural, alternatives });
    };
    if ('exact' in operand) {
      add(readExact(operand.exact).map((exact) => [kindOf(exact), { $eq: exact }]));
      continue;
    }
    const bound = 'from' in operand ? { $gte: operand.from } : { $lte: operand.to };
    const range = ranges.get(pointer);
    if (range === undefined) add([['number', bound]]);
    ranges.set(pointer, Object.assign(range ?? bound, bound));
  }
  return { filters, related, order: pathSort && paths.get(pathSort.pointer) };
}

/** The kind of a value, as a measure declares it. */
export function kindOf(value: Scalar): Kind {
  return typeof value === 'string' ? 'text' : (typeof value as 'number' | 'boolean');
}

/** Finds the models that declare another kind of values at a path, by kind. */
async function findOtherKinds(
  { store: { db }, account }: LookUpScope,
  pointer: string,
): Promise<ComparedPath['otherKinds']> {
  const spellings = spellingsOf(parseDataPath(pointer) ?? { steps: [] });
  const typed = { path: { $in: spellings }, type: { $exists: true } };
  const projection = { id_developer: 1, 'measures.path': 1, 'measures.type': 1 };
  const models = db.collection<StoredObject & { measures: readonly Measure[] }>(model.plural);
  const others: Record<Kind, string[]> = { number: [], text: [], boolean: [] };
  const declaring = await findMany(models, { account, measures: { $elemMatch: typed } }, { projection });
  for (const { id_developer, measures } of declaring) {
    const declared = measures.find(({ path }) => spellings.includes(path))?.type;
    for (const kind of kinds) if (kind !== declared) others[kind].push(id_developer);
  }
  return others;
}
