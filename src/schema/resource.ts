import type { FieldErrors } from '../errors.js';
import { flag, integer, recordedTime } from './fields/number.js';
import { identifier, identifierText, max_filter_id_developer_length, name, text } from './fields/text.js';
import {
  type AncestorLevel,
  type Field,
  type Fields,
  type FieldType,
  internal,
  optional,
  required,
  type Values,
  withDefault,
  withDocumentation,
  withExamples,
  withOptional,
} from './fields.js';
import { defineAncestorFilters, defineFilter, type Filter } from './filters.js';
import type { ComputedMembers } from './projection.js';
import { bySearchText, searchText } from './search.js';

/** Fields that several resources share (reference/resources.md#common-fields). */
export const description = optional(text(200, { min: 0 }), { about: 'Any text.' });
export const uniqueName = required(name(), { filter: true, about: 'Unique in the account.' });
export const enabled = withDefault(flag(), true, {
  filter: true,
  about: 'What is disabled, and everything below it, takes no streams.',
});

const username = (about: string): Field => required(text(50), { filter: true, about, example: 'admin' });
const time = (about: string): Field => required(recordedTime(), { filter: true, about });

/** Users and times of creation and last update, written by the service. */
export const auditFields: Fields = {
  owner: username('The user who created it.'),
  updater: username('The user who changed it last.'),
  created_at: time('Time of creation.'),
  updated_at: time('Time of the last change.'),
};

/** The identifier of the example of a type; examples are those of an account `demo`. */
function identityOf({ name }: Values): Field {
  const about = 'Identifier: the name at creation, `@` and the account.';
  return required(identifierText(max_filter_id_developer_length), { filter: true, about, example: `${name}@demo` });
}

/** The version of a resource, which updates compare and count. */
export const revision = required(integer({ min: 0 }), {
  about: 'Number of updates since the creation. An update that gives it fails with code 4005 if another one is stored.',
  example: 0,
});

/** Changes of a type that the event log has, as second parts of their types (reference/events.md#types). */
export interface EventDeclaration {
  /** First part of the types; default: the name of the type. */
  subject?: string;
  insert?: string;
  update?: string;
  delete?: string;
  /** Kinds that are no change of one object by a request. */
  more?: readonly string[];
  /** Whole types of events that changes name by themselves, in `last_change`. */
  named?: readonly string[];
  /** Large members that no event needs. */
  unlogged?: readonly string[];
  /** Members of an inserted object that its event shows; of an object below a device the first one names it. */
  shown?: readonly string[];
}

/** The changes that resources log unless they declare others. */
export const usualChanges = { insert: 'created', update: 'updated', delete: 'deleted' } as const;

/** The types of the events of these types. */
export function eventTypesOf(types: readonly StoredType[]): string[] {
  return types.flatMap(({ name, events = {} }) => {
    const { subject = name, insert, update, delete: removal, more = [], named = [] } = events;
    const kinds = [insert, update, removal, ...more].filter((kind) => kind !== undefined);
    return [...kinds.map((kind) => `${subject}.${kind}`), ...named];
  });
}

/** Differences for programs of the former platform (reference/access.md#former-clients). */
export interface LegacyRules {
  /** Replaces `computed` of the type for them. */
  computed?: ComputedMembers;
  /** Error 4005 has the stored version in a message (reference/resources.md#concurrency). */
  hasConflictMessage?: true;
  /** A DELETE whose identifier has no `@` answers 4004 (reference/identifiers.md#id_developer). */
  isMalformedIdBadParameter?: true;
  /** Further names of fields in bodies, by that name (reference/devices.md#parents). */
  aliases?: Readonly<Record<string, string>>;
  /** Names in bodies for which an empty text counts as `null`. */
  blankAsNull?: readonly string[];
}

/** A type of stored objects. */
export interface StoredType {
  /** XML element of one object (reference/requests.md#xml). */
  name: string;
  /** Path segment, and name of the collection. */
  plural: string;
  /** Fields that clients may write. */
  fields: Fields;
  /** Fields that only the service writes (reference/requests.md#body-fields). `required`: always present. */
  readOnly: Fields;
  /** Stored fields that responses never show. */
  hidden: Fields;
  /** Collections of possible parents, by the field that names the parent. */
  parentCollections: Readonly<Record<string, string>>;
  /** Unique compound keys; the last path names the field reported as taken. */
  unique: readonly (readonly string[])[];
  /** Paths of further indexes, for queries other than lists. */
  indexes: readonly (readonly string[])[];
  /** Objects have a `version` that updates check and increase (reference/resources.md#concurrency). */
  versioned: boolean;
  /** Members of a compound `_id` that clusters the collection: `account` first, one in order of creation last (record 24). */
  clusteredBy?: readonly string[] | undefined;
  /** Computed from other objects, and not counted among the children of an object. */
  isDerived?: boolean;
  /** Absent: the event log has nothing of it. */
  events?: EventDeclaration | undefined;
}

/** A type of stored objects that can be listed. */
export interface ListedType extends StoredType {
  /** Name in the OpenAPI document, such as `DeviceConfig`; with an `s` its plural. */
  title: string;
  /** Body of a create in the OpenAPI document, which holds the examples of the fields too. */
  example: Values;
  filters: readonly Filter[];
  /** The levels above, from the top; an object stores the ids of those it is below as `ancestors`. */
  ancestors: readonly AncestorLevel[];
  /** Stored paths by value of `sort`. */
  sorts: ReadonlyMap<string, readonly string[]>;
  defaultSort: string;
  omittedFromLists: readonly string[];
  /** Members that are shown only where `fields` names them (reference/exports.md#fields). */
  requested: Fields;
  /** Members with free keys, whose values lists are filtered by, and sorted if they are `requested` (reference/lists.md#paths). */
  pathFilters: readonly string[];
  /** Set if lists always show the children of one object: the field that names it. */
  parentField?: string | undefined;
  /** `version+content`: the entity tag includes a digest of the response, which can change without a new version. */
  etag: 'version' | 'version+content';
  computed?: ComputedMembers | undefined;
  legacy: LegacyRules;
  /** Keys of scope `device` may show an object. */
  isForDevices?: true;
  /** The part that limited keys see of a type that is neither in the hierarchy nor below devices; absent: nothing. */
  forLimited?: 'all' | ((limit: { field: string; id_developer: string; created_ms: number }) => Values);
  /** `member` of the object in `plural` that `field` names is inherited (reference/devices.md#model-properties). */
  inherits?: { field: string; plural: string; member: string } | undefined;
}

/** A resource with the five operations (reference/resources.md#operations). */
export interface Resource extends ListedType {
  messages: { created: string; updated: string; deleted: string };
  /** The fields that name the parent. Of several, an object has exactly one. */
  parents: readonly string[];
  /** `fields` for the members of a create, which cannot all be required if there are several parents. */
  createFields: Fields;
  /** Fields that name the object with which a resource is deleted, without being below it. */
  owners: readonly string[];
  /** Fields that name other resources of the account, parents included. */
  references: readonly string[];
  /** Names are unique in the account. If not, equal names get numbered identifiers (reference/identifiers.md#names). */
  uniqueNames: boolean;
  /** More bodies of a create, by what they create. */
  moreExamples: Readonly<Record<string, Values>>;
  /** Fields that a create must give all or none of. */
  allOrNone: readonly string[];
  /** Fields of which an object has one at most. */
  atMostOne: readonly string[];
  /** Fields whose update depends on the stored object: read, then write on condition that it is unchanged. */
  readModifyWrite: ReadonlySet<string>;
  toStored: (values: Values, context: StoredContext) => StoredChange;
}

export interface StoredContext {
  now: number;
  /** The values are of a new object. */
  creating?: true;
  /** The stored object, on an update of a `readModifyWrite` field. */
  stored?: Values;
  /** The objects that `stored` refers to, by field. */
  linked?: Readonly<Record<string, Values>>;
}

/** A write to the database. `faults`: errors of the client that depend on the stored object. */
export interface StoredChange {
  set: Values;
  unset: readonly string[];
  faults: FieldErrors;
  /** Values that must be unchanged when the write applies (optimistic lock). */
  precondition?: Values;
}

/** Sets the given values and unsets those that are null. */
export function defaultToStored(values: Values): StoredChange {
  const set: Values = {};
  const unset: string[] = [];
  for (const [key, value] of Object.entries(values)) {
    if (value === null) unset.push(key);
    else set[key] = value;
  }
  return { set, unset, faults: {} };
}

/** Declares a type that is not listed. */
export function defineStored(declaration: Pick<StoredType, 'name' | 'plural'> & Partial<StoredType>): StoredType {
  return {
    fields: {},
    readOnly: {},
    hidden: {},
    parentCollections: {},
    unique: [],
    indexes: [],
    versioned: false,
    ...declaration,
  };
}

type ListedDeclaration = Pick<ListedType, 'name' | 'plural' | 'fields' | 'defaultSort'> &
  Partial<Omit<ListedType, 'sorts'>> & {
    /** Sorts by stored paths that are not the name of a scalar field. */
    sorts?: Readonly<Record<string, readonly string[]>>;
    /** Stored paths of fields that are not stored under their names. */
    storedPaths?: Readonly<Record<string, string>>;
  };

/** Declares a listed type. Filters and sorts are derived from the fields; `filters` and `sorts` add more. */
export function defineListed(declaration: ListedDeclaration): ListedType {
  const { name, readOnly = {}, filters = [], sorts = {}, storedPaths = {}, example = {} } = declaration;
  const pathOf = (key: string) => storedPaths[key] ?? key;
  const fields = withExamples(declaration.fields, example);
  const shown = Object.entries({ ...readOnly, ...fields });
  return {
    title: name.charAt(0).toUpperCase() + name.slice(1),
    example,
    ancestors: [],
    omittedFromLists: [],
    requested: {},
    pathFilters: [],
    etag: 'version',
    legacy: {},
    ...defineStored(declaration),
    ...declaration,
    fields,
    readOnly,
    filters: [
      ...shown
        .filter(([, { filter }]) => filter !== false)
        .map(([key, { type, filter }]) =>
          defineFilter(key, pathOf(key), type, filter === 'sorted' ? { sorted: true } : {}),
        ),
      ...filters,
    ],
    sorts: new Map([
      ...shown
        .filter(([, field]) => field.type.query !== undefined)
        .map(([key]): [string, string[]] => [key, [pathOf(key)]]),
      ...Object.entries(sorts),
    ]),
  };
}

type ResourceDeclaration = Omit<ListedDeclaration, 'defaultSort'> &
  Pick<Resource, 'messages'> &
  Partial<Pick<Resource, 'defaultSort' | 'uniqueNames' | 'moreExamples' | 'allOrNone' | 'atMostOne' | 'toStored'>> & {
    readModifyWrite?: readonly string[];
  };

/** Declares a resource. Adds the common fields and derives parents and references from the fields. */
export function defineResource(declaration: ResourceDeclaration): Resource {
  const { fields, readOnly = {}, defaultSort = 'name', uniqueNames = true, unique = [], example = {} } = declaration;
  const { hidden = {}, filters = [] } = declaration;
  const references = Object.keys(fields).filter((key) => fields[key]?.references !== undefined);
  const parents = references.filter((key) => fields[key]?.references?.parent === true);
  const owners = references.filter((key) => fields[key]?.references?.owner === true);
  const ancestors = ancestorsOf(fields);
  const byAncestors = defineAncestorFilters(ancestors, parents.length);
  const listed = defineListed({
    ...declaration,
    ancestors,
    fields: withoutFilters(fields, byAncestors),
    parentCollections: Object.fromEntries(
      [...parents, ...owners].map((key) => [key, fields[key]?.references?.plural ?? '']),
    ),
    unique: [['account', 'id_developer'], ...(uniqueNames ? [['account', 'name']] : []), ...unique],
    defaultSort,
    versioned: true,
    events: declaration.events ?? usualChanges,
    hidden: {
      ...hidden,
      ...(ancestors.length > 0 && { ancestors: required(internal('ids')) }),
      search_text: searchText,
    },
    filters: [...filters, ...byAncestors, bySearchText],
    readOnly: { id_developer: identityOf(example), ...readOnly, ...auditFields, version: revision },
  });
  return {
    moreExamples: {},
    allOrNone: [],
    atMostOne: [],
    toStored: defaultToStored,
    ...declaration,
    ...listed,
    parents,
    owners,
    createFields: parents.length < 2 ? listed.fields : withOptional(parents, listed.fields),
    references,
    uniqueNames,
    readModifyWrite: new Set([...references, ...(declaration.readModifyWrite ?? [])]),
  };
}

/** The levels above a type: those above its lowest parent, and that parent. */
function ancestorsOf(fields: Fields): AncestorLevel[] {
  const levels = Object.entries(fields).flatMap(([field, { references }]) =>
    references?.parent === true ? [[...references.ancestors, { field, plural: references.plural }]] : [],
  );
  return levels.toSorted((level, other) => other.length - level.length)[0] ?? [];
}

/** The fields without a filter of their own where one of `filters` has the parameter. */
function withoutFilters(fields: Fields, filters: readonly Filter[]): Fields {
  const replaced = Object.entries(fields)
    .filter(([key]) => filters.some(({ params }) => key in params))
    .map(([key, field]): [string, Field] => [key, { ...field, filter: false }]);
  return { ...fields, ...Object.fromEntries(replaced) };
}

/** The identifier of an object in a path, with an example. @param parentField the example names its parent in this field */
export function describeIdentifier({ name, example, moreExamples }: Resource, parentField?: string): FieldType {
  const made = [example, ...Object.values(moreExamples)].find(
    (candidate) => parentField === undefined || parentField in candidate,
  );
  const about = `Identifier of the ${name}, percent-encoded.`;
  return withDocumentation(identifier(), { about, example: `${(made ?? example).name}@demo` });
}

/** Messages such as `Project created` (reference/requests.md#answers). */
export function buildMessages(label: string, created = `${label} created`): Resource['messages'] {
  return { created, updated: `${label} updated`, deleted: `${label} deleted` };
}
