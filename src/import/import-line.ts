import { isDuplicate } from '../db/driver-errors.js';
import { AppError, createFieldErrors, type FieldErrors, throwIfAny } from '../errors.js';
import type { LockKeys } from '../lib/keyed-mutex.js';
import type { OperationContext } from '../objects/context.js';
import type { Bson } from '../objects/page.js';
import { assertChangeable, assertCreatable } from '../objects/resources.js';
import { rethrowDuplicate } from '../objects/tree/references.js';
import { createResource } from '../objects/write/create.js';
import { updateResource } from '../objects/write/update.js';
import { resources, stream } from '../resources/index.js';
import { parseBody, parseUpdate } from '../schema/body.js';
import { checkNameCharacters, identifier } from '../schema/fields/text.js';
import type { Values } from '../schema/fields.js';
import type { Resource } from '../schema/resource.js';
import { getString } from '../serialize/bson.js';

/** Treatment of objects that exist already. */
export const conflictModes = ['skip', 'update', 'fail', 'create'] as const;
export type ConflictMode = (typeof conflictModes)[number];

/** The parameters of an import. */
export interface ImportOptions {
  /** The type of lines that do not name one. */
  resource: string | undefined;
  /** Identifiers of this account become identifiers of the caller's. */
  from_account: string | undefined;
  on_conflict: ConflictMode;
}

/** An object to import. */
export interface ImportItem {
  resource: Resource;
  body: Values;
  /** Given, or derived from the name; undefined for devices without `id_developer`, which are always created. */
  id: string | undefined;
  keys: LockKeys;
}

/** The outcome of a line that did not fail. */
export interface ImportOutcome {
  code: 2001 | 2005 | 2007;
  id_developer?: string;
}

/** Outcome of one line. */
export type LineOutcome = ImportOutcome | AppError;

/** Carries out one line; for a dry run, only computes the outcome. */
export type ImportItemHandler = (ctx: OperationContext, item: ImportItem, line: number) => Promise<ImportOutcome>;

const resourceByName: ReadonlyMap<unknown, Resource> = new Map(resources.map((resource) => [resource.name, resource]));
export const resourceNames = [...resources.map(({ name }) => name), stream.name];

/** Finds the resource with a name such as `device`. */
export function findResource(name: unknown): Resource | undefined {
  return resourceByName.get(name);
}

/** Reads the type, the identifier and the dependencies of a line. @throws AppError invalid (4003) */
export function parseItem(account: string, options: ImportOptions, line: Values): ImportItem {
  const { resource: named, id_developer, ...rest } = line;
  if (options.on_conflict === 'create')
    throw new AppError('invalid', { on_conflict: 'may be create for streams only' });
  const resource = findResource(named ?? options.resource);
  if (resource === undefined) {
    const reason = named === undefined ? 'is required' : `must be one of ${resourceNames.join(', ')}`;
    throw new AppError('invalid', { resource: reason });
  }
  const move = (id: unknown) => moveToAccount(id, options.from_account, account);
  const body: Values = Object.assign(Object.create(null) as Values, rest);
  for (const field of referenceNames(resource)) if (field in body) body[field] = move(body[field]);
  const faults = createFieldErrors();
  const name = parseName(resource, body.name);
  const givenId = id_developer == null ? undefined : parseIdentifier(move(id_developer), account, faults);
  throwIfAny('invalid', faults);
  const nameId = name === undefined ? undefined : `${name}@${account}`;
  const id = givenId ?? (resource.uniqueNames ? nameId : undefined);
  return { resource, body, id, keys: lockKeysOf(resource, body, { account, id, name, options }) };
}

/** Names of the fields in bodies that hold identifiers. */
function referenceNames({ references, legacy: { aliases = {} } }: Resource): string[] {
  return [...references, ...Object.keys(aliases).filter((alias) => references.includes(aliases[alias] ?? ''))];
}

/** Replaces the account of an identifier. */
export function moveToAccount(id: unknown, from: string | undefined, to: string): unknown {
  if (from === undefined || typeof id !== 'string' || !id.endsWith(`@${from}`)) return id;
  return id.slice(0, -from.length) + to;
}

function parseName({ fields }: Resource, value: unknown): string | undefined {
  const name = fields.name?.type.body(value, 'name', createFieldErrors());
  return typeof name === 'string' ? name : undefined;
}

const identifierType = identifier();

function parseIdentifier(value: unknown, account: string, faults: FieldErrors): string | undefined {
  const id = identifierType.body(value, 'id_developer', faults);
  if (typeof id !== 'string') return undefined;
  const at = id.lastIndexOf('@');
  const name = id.slice(0, at);
  if (id.slice(at + 1) !== account) faults.id_developer = `must be an identifier of the account ${account}`;
  else if (name.trim() !== name || checkNameCharacters(name) !== undefined)
    faults.id_developer = 'must begin with a name that can be seen, without control characters';
  return id;
}

interface LockInput {
  account: string;
  id: string | undefined;
  name: string | undefined;
  options: ImportOptions;
}

/**
 * Objects and names that a line depends on: lines of one file with a common key are carried out in their order. Devices of
 * one name are numbered, so `Pump` depends on `Pump-2@account` too.
 */
function lockKeysOf(resource: Resource, body: Values, { account, id, name, options }: LockInput): LockKeys {
  const { plural, uniqueNames, fields } = resource;
  const own = id ?? `${name}@${account}`;
  const exclusive = [`${plural} ${own}`];
  const shared = referenceNames(resource).flatMap((field) => {
    const target = fields[resource.legacy.aliases?.[field] ?? field]?.references?.plural;
    return typeof body[field] === 'string' ? [`${target} ${body[field]}`] : [];
  });
  if (uniqueNames) exclusive.push(`${plural} named ${name}`);
  // a line that is refused holds paths with `filter` for a while, of which an account has few
  if (body.measures !== undefined) exclusive.push('measures');
  // an update may take and free any name
  if (uniqueNames && options.on_conflict === 'update') exclusive.push(`${plural} names`);
  if (uniqueNames) return { exclusive, shared };
  if (id === undefined) exclusive.push(`${plural} numbered ${name}`);
  const numbered = /^(.+)-\d+$/s.exec(own.slice(0, -account.length - 1))?.[1];
  if (numbered !== undefined) shared.push(`${plural} numbered ${numbered}`);
  return { exclusive, shared };
}

/** Looks objects up and changes them: in the database, or for a dry run in memory. */
export interface ItemActions<Stored> {
  find(ctx: OperationContext, resource: Resource, id: string): Promise<Stored | undefined>;
  create(ctx: OperationContext, item: ImportItem, values: Values): Promise<ImportOutcome>;
  update(ctx: OperationContext, item: ImportItem, found: { id: string; stored: Stored }, line: number): Promise<void>;
}

/** Creates the function that carries out lines as single requests would (reference/import.md#lines). */
export function createItemHandler<Stored>(
  { on_conflict }: Pick<ImportOptions, 'on_conflict'>,
  { find, create, update }: ItemActions<Stored>,
): ImportItemHandler {
  return async (ctx, item, line) => {
    const { resource, body, id } = item;
    for (let isRepeated = false; ; isRepeated = true) {
      const stored = id === undefined ? undefined : await find(ctx, resource, id);
      if (stored === undefined) assertCreatable(ctx, resource);
      const parsed = on_conflict === 'update' ? undefined : parseBody(resource, body);
      if (id !== undefined && stored !== undefined) {
        if (on_conflict === 'fail') throw new AppError('invalid', { id_developer: 'is taken' });
        if (on_conflict === 'update') await update(ctx, item, { id, stored }, line);
        return { code: on_conflict === 'update' ? 2005 : 2007, id_developer: id };
      }
      const values = parsed ?? parseBody(resource, body);
      try {
        return await create(ctx, item, values);
      } catch (error) {
        if (id === undefined || !isDuplicate(error)) throw error;
        // another request has created the object in between
        if (isRepeated) return rethrowDuplicate(ctx, resource, values, error);
      }
    }
  };
}

/** Creates and updates objects in the database. */
export const itemsInDatabase: ItemActions<Bson> = {
  find: (ctx, { plural }, id) => ctx.store.loader(plural).find(ctx, id),
  async create(ctx, { resource, id }, values) {
    return { code: 2001, id_developer: await createResource(ctx, resource, values, id) };
  },
  async update(ctx, { resource, body }, { id, stored }, line) {
    assertChangeable(ctx, resource);
    const { values, version } = parseUpdate(resource, body);
    const acceptedVersions = version === undefined ? undefined : [version];
    await updateResource(withLineId(ctx, stored, line), resource, id, { values, acceptedVersions });
  },
};

/**
 * A batched update is recognized by its request id, which must differ from that of an earlier line of this import for the
 * same object (docs/decisions/0008-batched-commands.md).
 */
function withLineId(ctx: OperationContext, stored: Bson, line: number): OperationContext {
  if (getString(stored, 'last_request_id') !== ctx.request_id) return ctx;
  return { ...ctx, request_id: `${ctx.request_id}/${line}` };
}
