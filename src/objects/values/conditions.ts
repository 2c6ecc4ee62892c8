import { type Database, read_limit_ms, type StoredObject } from '../../db/database.js';
import type { Id } from '../../db/ids.js';
import { AppError, createFieldErrors, type FieldErrors, throwIfAny } from '../../errors.js';
import type { Measure } from '../../resources/measure.js';
import { model } from '../../resources/model.js';
import { formatPointer, parseDataPath } from '../../schema/data-path.js';
import { parseSinglePath } from '../../schema/fields/path.js';
import type { ListRequest } from '../../schema/list-parameters.js';
import { type NamedPath, readExact } from '../../schema/path-filters.js';
import type { OperationContext } from '../context.js';
import { findDeclared, measuredPathsOf } from '../measured-paths.js';
import type { Scalar } from './values.js';

type Scope = Pick<OperationContext, 'store' | 'account'>;

type Kind = 'number' | 'text' | 'boolean';

/** A comparison of the values at a measured path: a value has to match one of the alternatives. */
export interface DeviceValueCondition {
  path: Id;
  param: string;
  alternatives: readonly Alternative[];
}

/** Values of one kind. Not those of devices of models that declare another kind. */
interface Alternative {
  kind: Kind;
  values: { exact: Scalar } | { from?: number; to?: number };
  excluded_models: readonly string[];
}

/**
 * Finds the measured paths that parameters name.
 * @returns their internal ids by JSON Pointer @throws AppError badParameter (4004) for paths that no measure with `filter` has,
 * database (5031) while the values at one are being read from the stored streams
 */
async function findMeasuredPaths(
  { store: { db }, account }: Scope,
  named: readonly NamedPath[],
): Promise<ReadonlyMap<string, Id>> {
  const pointers = [...new Set(named.map(({ pointer }) => pointer))];
  const [declared, stored] = await Promise.all([
    findDeclared(db, account, pointers),
    measuredPathsOf(db)
      .find({ account, path: { $in: pointers } }, { maxTimeMS: read_limit_ms })
      .toArray(),
  ]);
  throwIfAny('badParameter', describeUndeclared(named, declared));
  const filled = new Map(stored.flatMap(({ _id, path, fill_at }) => (fill_at === undefined ? [[path, _id]] : [])));
  const isIncomplete = ({ pointer }: NamedPath) => !filled.has(pointer);
  if (named.some(isIncomplete))
    throw new AppError('database', describe(named, isIncomplete, 'is not complete yet: stored streams are being read'));
  return filled;
}

/** Asserts that measures with `filter` have the paths of values. @throws AppError badParameter (4004) */
export async function assertDeclared({ store: { db }, account }: Scope, compared: readonly NamedPath[]): Promise<void> {
  const named = compared.filter(isOfValues);
  const pointers = named.map(({ pointer }) => pointer);
  throwIfAny('badParameter', describeUndeclared(named, await findDeclared(db, account, pointers)));
}

function isOfValues({ member }: NamedPath): boolean {
  return member === 'latest';
}

function describeUndeclared(named: readonly NamedPath[], declared: ReadonlySet<string>): FieldErrors {
  return describe(named, ({ pointer }) => !declared.has(pointer), 'is the path of no measure with filter');
}

function describe(named: readonly NamedPath[], isWrong: (path: NamedPath) => boolean, fault: string): FieldErrors {
  const faults = createFieldErrors();
  for (const path of named) if (isWrong(path)) faults[path.param] = fault;
  return faults;
}

/** The conditions of a request on the last values of devices, and the path by whose values it is sorted. */
export interface ValueComparisons {
  conditions: DeviceValueCondition[];
  sortedBy?: Id | undefined;
}

/**
 * Prepares the comparisons of a request with the last values of devices. Both ends of a range are one.
 * @throws as `findMeasuredPaths`
 */
export async function prepareValueConditions(
  scope: Scope,
  { paths: compared = [], pathSort }: Pick<ListRequest, 'paths' | 'pathSort'>,
): Promise<ValueComparisons> {
  const named = compared.filter(isOfValues);
  if (named.length === 0 && pathSort === undefined) return { conditions: [] };
  const paths = await findMeasuredPaths(scope, [...named, ...(pathSort ? [pathSort] : [])]);
  const sortedBy = pathSort && paths.get(pathSort.pointer);
  const conditions: DeviceValueCondition[] = [];
  const ranges = new Map<string, { from?: number; to?: number }>();
  for (const { pointer, param, operand } of named) {
    const path = paths.get(pointer);
    if (path === undefined) continue;
    const excluded = await findOtherKinds(scope, pointer);
    const toAlternative = (kind: Kind, values: Alternative['values']) => ({
      ...{ kind, values },
      excluded_models: excluded[kind],
    });
    if ('exact' in operand) {
      const candidates = readExact(operand.exact);
      const alternatives = candidates.map((exact) => toAlternative(kindOf(exact), { exact }));
      conditions.push({ path, param, alternatives });
      continue;
    }
    const range = ranges.get(pointer);
    if (range !== undefined) Object.assign(range, operand);
    else {
      const values = { ...operand };
      ranges.set(pointer, values);
      conditions.push({ path, param, alternatives: [toAlternative('number', values)] });
    }
  }
  return { conditions, sortedBy };
}

function kindOf(value: Scalar): Kind {
  return typeof value === 'string' ? 'text' : (typeof value as 'number' | 'boolean');
}

/** Finds the models that declare another kind of values at a path, by kind. */
async function findOtherKinds({ store: { db }, account }: Scope, pointer: string): Promise<Record<Kind, string[]>> {
  const steps = parseDataPath(pointer)?.steps ?? [];
  const spellings = [pointer, steps.map(({ key }) => key).join('.')];
  const typed = { path: { $in: spellings }, type: { $exists: true } };
  const models = await readTyped(db, { account, measures: { $elemMatch: typed } });
  const others: Record<Kind, string[]> = { number: [], text: [], boolean: [] };
  for (const { id_developer, measures } of models) {
    const declared = measures.find(({ path }) => {
      const parsed = parseSinglePath(path);
      return parsed !== undefined && formatPointer(parsed) === pointer;
    });
    if (declared?.type === undefined) continue;
    for (const kind of ['number', 'text', 'boolean'] as const)
      if (kind !== declared.type) others[kind].push(id_developer);
  }
  return others;
}

function readTyped(db: Database, filter: object) {
  const options = { projection: { id_developer: 1, 'measures.path': 1, 'measures.type': 1 }, maxTimeMS: read_limit_ms };
  return db.collection<StoredObject & { measures: readonly Measure[] }>(model.plural).find(filter, options).toArray();
}
