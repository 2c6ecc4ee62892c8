import { freeform } from '../schema/fields/freeform.js';
import { timestamp } from '../schema/fields/number.js';
import { identifierText, text, textMatching } from '../schema/fields/text.js';
import { computed, type Field, type FieldType, optional, required, withDocumentation } from '../schema/fields.js';
import type { Conditions, Filter } from '../schema/filters.js';
import type { ComputedMembers } from '../schema/projection.js';
import { defineListed, eventTypesOf, type ListedType, type StoredType } from '../schema/resource.js';

const typePattern = /^[a-z]+\.[a-z_]*$/;

/** The type of an event, or the beginning of types up to a dot (reference/events.md#filters). */
export function typeSelector(): FieldType {
  return textMatching(
    50,
    (value) => typePattern.test(value),
    'a type such as device.created, or a prefix such as device.',
    {
      pattern: typePattern.source,
    },
  );
}

/** Reports whether a selector, which may end in a dot, selects a type. */
export function isSelected(type: string, selector: string): boolean {
  return selector.endsWith('.') ? type.startsWith(selector) : type === selector;
}

/** The fields that name the objects above the subject of an event, from the top. */
export const ancestorFields = ['id_project', 'id_service', 'id_group', 'id_asset'] as const;
export type AncestorField = (typeof ancestorFields)[number];

/** A stored event: its id is `_id`. */
export interface StoredEvent {
  _id: string;
  account: string;
  type: string;
  /** Epoch seconds with milliseconds. */
  at: number;
  resource: string;
  id_developer: string;
  user?: string;
  request_id?: string;
  id_project?: string;
  id_service?: string;
  id_group?: string;
  id_asset?: string;
  data?: object;
}

/** Ids of events: 16 digits for the moment of the write in the database, and 2 that count the events of one write. */
export const eventIdPattern = /^[0-9a-f]{16}[0-9a-z]{2}$/;
/** Values of `after`: the id of an event, or 0 for the beginning of the log. */
export const afterEventPattern = new RegExp(`^0$|${eventIdPattern.source}`);
const eventId = '69214e6f0000000100';
const ancestor = (name: string, example: string): Field =>
  optional(identifierText(), {
    filter: true,
    about: `The ${name} that the object belonged to, directly or through others.`,
    example,
  });

const type = withDocumentation(typeSelector(), {
  about: 'Only events of this type, or of all types that begin with this text, which ends in a dot.',
  example: 'device.',
});

const resource = withDocumentation(text(50), { about: 'Only with exactly this value.', example: 'device' });

/** The filters by type and by resource, which share an index: one more would make the write of each event more expensive. */
function typeFilters(types: readonly string[]): Filter[] {
  const index = { paths: ['type'] };
  // equalities, unlike a range, keep the order of the index
  const select = (selector: string): Conditions => ({
    type: { $in: types.filter((eventType) => isSelected(eventType, selector)) },
  });
  return [
    { params: { type }, index, conditions: (values) => select(String(values.type)) },
    { params: { resource }, index, conditions: (values) => select(`${values.resource}.`) },
  ];
}

/** The identifier comes from `_id`, which is text here. */
const computedMembers: ComputedMembers = {
  from: new Set(['_id']),
  print(stored, out) {
    out.member('id', stored.text('_id') ?? '');
  },
};

/**
 * The events about an object and everything that was below it at the time. Those of keys, models and the account name
 * nothing in the hierarchy.
 */
function conditionsOfLimit(types: readonly StoredType[]): NonNullable<ListedType['forLimited']> {
  const subjects = deviceSubjectsOf(types);
  return ({ field, id_developer, created_ms }) => {
    const names = field === 'id_device' ? subjects : [field.slice('id_'.length)];
    const ofObject = { id_developer: { $eq: id_developer }, resource: { $in: names } };
    // an earlier object may have had the identifier
    const sinceCreation = { at: { $gte: Math.floor(created_ms / 1000) } };
    if (field === 'id_device') return { ...ofObject, ...sinceCreation };
    return { $or: [{ [field]: { $eq: id_developer } }, ofObject], ...sinceCreation };
  };
}

/** The resources whose events are about a device. */
export function deviceSubjectsOf(types: readonly StoredType[]): string[] {
  const ofDevices = types.filter((listed) => listed.name === 'device' || isOfDevice(listed));
  return [...new Set(eventTypesOf(ofDevices).map((type) => type.slice(0, type.indexOf('.'))))];
}

/** Reports whether objects of a type, and so their events, name a device. */
function isOfDevice({ parentCollections, readOnly }: StoredType): boolean {
  return 'device' in parentCollections || 'device' in readOnly;
}

/** Declares the entries of the event log (reference/events.md#fields). @param types those that it has events of */
export function defineEvents(types: readonly StoredType[]): ListedType {
  return defineListed({
    name: 'event',
    plural: 'events',
    title: 'LoggedEvent',
    fields: {},
    readOnly: {
      id: required(computed(text(18)), {
        about: 'Identifies the event. Ids are in the order in which events were written.',
        example: eventId,
      }),
      type: required(text(50), { about: 'Resource and kind of the change.', example: 'device.updated' }),
      at: required(timestamp(), { filter: true, about: 'When it happened, with milliseconds.' }),
      resource: required(text(50), { about: 'The part of `type` before the dot.', example: 'device' }),
      id_developer: required(identifierText(), {
        filter: true,
        about: 'Identifier of the object; of its device for what belongs to one.',
        example: 'Pump@demo',
      }),
      user: optional(text(50), { filter: true, about: 'The user whose request caused it.', example: 'admin' }),
      request_id: optional(text(200), {
        about: '`X-Request-Id` of that request.',
        example: '0c6c4d2e-6f0f-4d2c-9a35-0d9ed62b5f0e',
      }),
      id_project: ancestor('project', 'Factory@demo'),
      id_service: ancestor('service', 'Cooling@demo'),
      id_group: ancestor('group', 'Hall 1@demo'),
      id_asset: ancestor('asset', 'Chiller 3@demo'),
      data: optional(freeform({ levels: 16 }), {
        about: 'Details, by type.',
        example: { version: 1, changed: ['description'] },
      }),
    },
    computed: computedMembers,
    forLimited: conditionsOfLimit(types),
    filters: typeFilters([...eventTypesOf(types), 'log.gap']),
    sorts: { id: ['_id'] },
    defaultSort: 'id',
  });
}
