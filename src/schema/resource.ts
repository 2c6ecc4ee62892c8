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
  /** The XML element of one object (contract 4). */
  name: string;
  /** The path segment and the collection. */
  plural: string;
  /** What clients may write. */
  fields: Fields;
  /** What only the service writes; accepted and ignored in bodies (contract 5). `required` is what is always there. */
  readOnly: Fields;
  /** What is stored and never shown. */
  hidden: Fields;
  filters: readonly Filter[];
  /** `sort` values and the stored paths they sort by. */
  sorts: ReadonlyMap<string, readonly string[]>;
  defaultSort: string;
  /** Left out of lists, shown in single objects. */
  omittedFromLists: readonly string[];
  /** The fields that name the resource above, and the collections it may be in. */
  parentCollections: Readonly<Record<string, string>>;
  /** Lists are always of the children of one object, named by this field. */
  parentField?: string | undefined;
  /** Stored paths that together occur once. The last one is what a client is told is taken. */
  unique: readonly (readonly string[])[];
}

/** A resource with the five operations of section 4. */
export interface Resource extends ListedType {
  messages: { created: string; updated: string; deleted: string };
  /** The fields of `above`; with several of them exactly one is given. */
  parents: readonly string[];
  /** Fields that name other resources of the account, parents included. */
  references: readonly string[];
  /** Names are unique in the account and make the identifier; else the identifier gets a number (contract 3). */
  uniqueNames: boolean;
  /** How error 4005 shows the stored version: as a number, or as a field's message for groups and assets (§7.2). */
  conflict: 'number' | 'message';
  /** Fields of which a create gives all or none. */
  allOrNone: readonly string[];
  /** Fields whose change can only be written by knowing what is stored. */
  readModifyWrite: ReadonlySet<string>;
  /** Turns validated values into what is stored. */
  toStored: (values: Values, known: StoredContext) => StoredChange;
}

/** What `pack` may know. */
export interface StoredContext {
  now: number;
  /** The values are those of a new object. */
  creating?: true;
  /** The stored object of an update of a `dependent` field. */
  stored?: Values;
  /** The objects that `stored` refers to, by field. */
  linked?: Readonly<Record<string, Values>>;
}

/** What goes into the database; `faults` are those that only the stored object shows. */
export interface StoredChange {
  set: Values;
  unset: readonly string[];
  faults: FieldErrors;
  /** What must still be stored for this to be right. */
  precondition?: Values;
}

/** The plain way: what is given is set, what is null is taken away. */
export function defaultToStored(values: Values): StoredChange {
  const set: Values = {};
  const unset: string[] = [];
  for (const [key, value] of Object.entries(values)) {
    if (value === null) unset.push(key);
    else set[key] = value;
  }
  return { set, unset, faults: {} };
}

interface ListedDeclaration {
  name: string;
  plural: string;
  fields: Fields;
  readOnly?: Fields;
  hidden?: Fields;
  /** Beyond those that the fields bring along. */
  filters?: readonly Filter[];
  /** Sort values beyond the scalar fields, or fields stored elsewhere than under their name. */
  sorts?: Readonly<Record<string, readonly string[]>>;
  defaultSort: string;
  unlisted?: readonly string[];
  above?: Readonly<Record<string, string>>;
  within?: string;
  unique?: ListedType['unique'];
}

/** @returns the declaration with its filters and sorts derived from the fields */
export function defineListed(declaration: ListedDeclaration): ListedType {
  const {
    fields,
    readOnly = {},
    hidden = {},
    filters = [],
    sorts = {},
    unlisted = [],
    above = {},
    unique = [],
  } = declaration;
  const shown = Object.entries({ ...readOnly, ...fields });
  return {
    name: declaration.name,
    plural: declaration.plural,
    fields,
    readOnly,
    hidden,
    filters: [
      ...shown.filter(([, { filter }]) => filter !== false).map(([key, field]) => filterOf(key, field)),
      ...filters,
    ],
    sorts: new Map([
      ...shown.filter(([, field]) => field.type.query !== undefined).map(([key]): [string, string[]] => [key, [key]]),
      ...Object.entries(sorts),
    ]),
    defaultSort: declaration.defaultSort,
    omittedFromLists: unlisted,
    parentCollections: above,
    unique,
    parentField: declaration.within,
  };
}

function filterOf(key: string, { type, filter }: Field): Filter {
  return filter === 'sorted' ? fieldFilter(key, key, type, { sorted: true }) : fieldFilter(key, key, type);
}

interface ResourceDeclaration extends Omit<ListedDeclaration, 'defaultSort'> {
  defaultSort?: string;
  messages: Resource['messages'];
  uniqueNames?: boolean;
  conflict?: Resource['conflict'];
  together?: Resource['allOrNone'];
  dependent?: readonly string[];
  pack?: Resource['toStored'];
}

/** Declares a resource once; the common fields of section 2.1 and what follows from the fields are added. */
export function defineResource(declaration: ResourceDeclaration): Resource {
  const { fields, readOnly = {}, defaultSort = 'name' } = declaration;
  const references = Object.keys(fields).filter((key) => fields[key]?.references !== undefined);
  const parents = references.filter((key) => fields[key]?.references?.parent === true);
  const uniqueNames = declaration.uniqueNames ?? true;
  const unique = [['account', 'id_developer'], ...(uniqueNames ? [['account', 'name']] : [])];
  const above = Object.fromEntries(parents.map((key) => [key, fields[key]?.references?.plural ?? '']));
  return {
    ...defineListed({
      ...declaration,
      above,
      unique,
      defaultSort,
      readOnly: { ...identity, ...readOnly, ...auditFields, ...revision },
    }),
    messages: declaration.messages,
    parents,
    references,
    uniqueNames,
    conflict: declaration.conflict ?? 'number',
    allOrNone: declaration.together ?? [],
    readModifyWrite: new Set([...references, ...(declaration.dependent ?? [])]),
    toStored: declaration.pack ?? defaultToStored,
  };
}

/** `Project created` and so on (contract 4). */
export function statusMessages(label: string, created = `${label} created`): Resource['messages'] {
  return { created, updated: `${label} updated`, deleted: `${label} deleted` };
}
