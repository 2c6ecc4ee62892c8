import type { FieldErrors } from '../errors.js';
import {
  type Field,
  type Fields,
  flag,
  integer,
  max_identifier_length,
  optional,
  required,
  text,
  timestamp,
  type Values,
  withDefault,
} from './fields.js';
import { type Filter, fieldFilter } from './filters.js';
import type { ComputedMembers } from './projection.js';

/** Fields that several resources share (§2.1). */
export const description = optional(text(200, { min: 0 }));
export const enabled = withDefault(flag(), true, { filter: true });

const username = (): Field => required(text(50), { filter: true });
const time = (): Field => required(timestamp(), { filter: true });

/** Who wrote it and when (§2.1). */
export const auditFields: Fields = { owner: username(), updater: username(), created_at: time(), updated_at: time() };

/** What the service gives every resource of the hierarchy (§2.1). */
const identity: Fields = { id_developer: required(text(max_identifier_length), { filter: true }) };
const revision: Fields = { version: required(integer({ min: 0 })) };

/** A type of stored objects that can be listed: what is shown, filtered and sorted. */
export interface ListedType {
  /** XML element of one object (contract 4). */
  name: string;
  /** Path segment and collection. */
  plural: string;
  /** Fields that clients may write. */
  fields: Fields;
  /** Fields that only the service writes; accepted and ignored in bodies (contract 5). `required` ones are always present. */
  readOnly: Fields;
  /** Stored and never shown. */
  hidden: Fields;
  filters: readonly Filter[];
  /** `sort` values and the stored paths they sort by. */
  sorts: ReadonlyMap<string, readonly string[]>;
  defaultSort: string;
  /** Left out of lists, shown in single objects. */
  omittedFromLists: readonly string[];
  /** Collections of possible parents, by the field that names the parent. */
  parentCollections: Readonly<Record<string, string>>;
  /** Lists are always of the children of one object, named by this field. */
  parentField?: string | undefined;
  /** Unique compound keys; the last path names the field reported as taken. */
  unique: readonly (readonly string[])[];
  /** Objects carry a `version` that updates check and increase (contract 5). */
  versioned: boolean;
  /** `version+content`: the entity tag also has a digest of the object as shown, for what changes without a new version. */
  etag: 'version' | 'version+content';
  /** Members made from stored ones under other names. */
  computed?: ComputedMembers | undefined;
  /** `member` of the object of `plural` that `field` names is shown where the object itself does not set it (contract 5). */
  inherits?: { field: string; plural: string; member: string } | undefined;
}

/** A resource with create, show, list, update and delete. */
export interface Resource extends ListedType {
  messages: { created: string; updated: string; deleted: string };
  /** The fields of `parentCollections`; with several of them exactly one is given. */
  parents: readonly string[];
  /** Fields that name other resources of the account, parents included. */
  references: readonly string[];
  /** Names are unique in the account and make the identifier; else the identifier gets a number (contract 3). */
  uniqueNames: boolean;
  /** How error 4005 shows the stored version: as a number, or as a field's message for groups and assets (§7.2). */
  conflict: 'number' | 'message';
  /** Answer to a DELETE whose identifier has no `@` (contract 4): `badParameter` for devices and all types below them. */
  malformedIdOnDelete: 'notFound' | 'badParameter';
  /** Fields of which a create gives all or none. */
  allOrNone: readonly string[];
  /** Fields whose update is a read-modify-write. */
  readModifyWrite: ReadonlySet<string>;
  /** Turns validated values into what is stored. */
  toStored: (values: Values, known: StoredContext) => StoredChange;
}

/** Input of `toStored`. */
export interface StoredContext {
  now: number;
  /** The values are those of a new object. */
  creating?: true;
  /** The stored object, on an update of a `readModifyWrite` field. */
  stored?: Values;
  /** The objects that `stored` refers to, by field. */
  linked?: Readonly<Record<string, Values>>;
}

/** A write to the database; `faults` are those that only the stored object shows. */
export interface StoredChange {
  set: Values;
  unset: readonly string[];
  faults: FieldErrors;
  /** Values that must be unchanged when the write applies (optimistic lock). */
  precondition?: Values;
}

/** Sets what is given and unsets what is null. */
export function defaultToStored(values: Values): StoredChange {
  const set: Values = {};
  const unset: string[] = [];
  for (const [key, value] of Object.entries(values)) {
    if (value === null) unset.push(key);
    else set[key] = value;
  }
  return { set, unset, faults: {} };
}

type ListedDeclaration = Pick<ListedType, 'name' | 'plural' | 'fields' | 'defaultSort'> &
  Partial<Omit<ListedType, 'sorts'>> & {
    /** Sort values beyond the scalar fields, or fields stored elsewhere than under their name. */
    sorts?: Readonly<Record<string, readonly string[]>>;
  };

/** Declares a listed type; its fields bring their filters and sorts, `filters` and `sorts` add more. */
export function defineListed(declaration: ListedDeclaration): ListedType {
  const { fields, readOnly = {}, filters = [], sorts = {} } = declaration;
  const shown = Object.entries({ ...readOnly, ...fields });
  return {
    hidden: {},
    omittedFromLists: [],
    parentCollections: {},
    unique: [],
    versioned: false,
    etag: 'version',
    ...declaration,
    readOnly,
    filters: [
      ...shown.filter(([, { filter }]) => filter !== false).map(([key, field]) => filterOf(key, field)),
      ...filters,
    ],
    sorts: new Map([
      ...shown.filter(([, field]) => field.type.query !== undefined).map(([key]): [string, string[]] => [key, [key]]),
      ...Object.entries(sorts),
    ]),
  };
}

function filterOf(key: string, { type, filter }: Field): Filter {
  return filter === 'sorted' ? fieldFilter(key, key, type, { sorted: true }) : fieldFilter(key, key, type);
}

type ResourceDeclaration = Omit<ListedDeclaration, 'defaultSort'> &
  Pick<Resource, 'messages'> &
  Partial<
    Pick<Resource, 'defaultSort' | 'uniqueNames' | 'conflict' | 'malformedIdOnDelete' | 'allOrNone' | 'toStored'>
  > & { readModifyWrite?: readonly string[] };

/** Declares a resource once; the common fields (specification 2.1) and whatever follows from the fields are added. */
export function defineResource(declaration: ResourceDeclaration): Resource {
  const { fields, readOnly = {}, defaultSort = 'name', uniqueNames = true } = declaration;
  const references = Object.keys(fields).filter((key) => fields[key]?.references !== undefined);
  const parents = references.filter((key) => fields[key]?.references?.parent === true);
  const listed = defineListed({
    ...declaration,
    parentCollections: Object.fromEntries(parents.map((key) => [key, fields[key]?.references?.plural ?? ''])),
    unique: [['account', 'id_developer'], ...(uniqueNames ? [['account', 'name']] : [])],
    defaultSort,
    versioned: true,
    readOnly: { ...identity, ...readOnly, ...auditFields, ...revision },
  });
  return {
    conflict: 'number',
    malformedIdOnDelete: 'notFound',
    allOrNone: [],
    toStored: defaultToStored,
    ...declaration,
    ...listed,
    parents,
    references,
    uniqueNames,
    readModifyWrite: new Set([...references, ...(declaration.readModifyWrite ?? [])]),
  };
}

/** `Project created` and so on (contract 4). */
export function statusMessages(label: string, created = `${label} created`): Resource['messages'] {
  return { created, updated: `${label} updated`, deleted: `${label} deleted` };
}
