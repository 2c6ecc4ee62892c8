import { isDeepStrictEqual } from 'node:util';
import { isTimeZone, timeZones } from '../../catalogues/time-zones.js';
import { freeform } from '../../schema/fields/freeform.js';
import { integer, timestamp } from '../../schema/fields/number.js';
import { isPlainObject, point } from '../../schema/fields/object.js';
import { parent, reference } from '../../schema/fields/reference.js';
import { choice, exactText, name, text, textMatching } from '../../schema/fields/text.js';
import { computed, type FieldType, optional, required, type Values, withDefault } from '../../schema/fields.js';
import {
  buildMessages,
  defaultToStored,
  defineResource,
  description,
  enabled,
  type StoredChange,
  type StoredContext,
} from '../../schema/resource.js';
import { asset } from '../asset.js';
import { group } from '../group.js';
import { model } from '../model.js';
import { latitude, longitude, setLocation, withinRadius } from './location.js';
import { networking, networkingFilters } from './networking.js';
import { computedMembers, formerMembers } from './projection.js';
import {
  byStatus,
  byStreamKind,
  deadline,
  deadlineBounds,
  initializeDeadlines,
  rescheduleDeadlines,
  statuses,
} from './status.js';

/** A device of a group or of an asset (reference/devices.md#fields). */
export const device = defineResource({
  name: 'device',
  plural: 'devices',
  messages: buildMessages('Device'),
  uniqueNames: false,
  etag: 'version+content',
  malformedIdOnDelete: 'badParameter',
  computed: computedMembers,
  computedForFormerClients: formerMembers,
  inherits: { field: 'id_model', plural: model.plural, member: 'properties' },
  defaultSort: 'device',
  fields: {
    type: required(text(50), { filter: true }),
    name: required(name(), { filter: 'sorted' }),
    id_group: parent(group),
    id_asset: parent(asset),
    id_model: reference(model),
    description: { ...description, filter: true },
    properties: optional(freeform({ levels: 5 })),
    sensor: optional(text(50), { filter: true }),
    firmware: optional(text(50), { filter: true }),
    checksum: optional(exactText(40)),
    time_zone: withDefault(timeZone(), 'Europe/Madrid'),
    frequency_status: withDefault(integer({ min: 1 }), 1440),
    frequency_stream: withDefault(integer({ min: 1 }), 1440),
    lon: optional(computed(longitude())),
    lat: optional(computed(latitude())),
    enabled,
    networking: optional(networking),
  },
  readOnly: {
    status: required(computed(choice(...statuses))),
    last_stream_at: optional(timestamp()),
    last_status_at: optional(timestamp()),
    stream_due_at: optional(deadline()),
    status_due_at: optional(deadline()),
  },
  hidden: { location: optional(point()), ...deadlineBounds },
  filters: [byStatus, byStreamKind, withinRadius, ...networkingFilters],
  sorts: {
    device: ['id_developer'],
    lon: ['location.coordinates.0'],
    lat: ['location.coordinates.1'],
  },
  aliases: { id_assets: 'id_asset' },
  blankAsNull: ['id_group', 'id_asset', 'id_assets', 'id_model'],
  allOrNone: ['lon', 'lat'],
  readModifyWrite: ['lon', 'lat', 'properties', 'frequency_stream', 'frequency_status'],
  toStored,
});

function timeZone(): FieldType {
  const type = textMatching(100, isTimeZone, 'a time zone listed at /time_zones/');
  return { ...type, schema: { title: 'iana_time_zone', type: 'string', enum: timeZones } };
}

function toStored(values: Values, context: StoredContext): StoredChange {
  const { lon, lat, ...plain } = values;
  const { set, unset, faults } = defaultToStored(plain);
  const change = { set, unset: [...unset], faults, precondition: {} };
  if (context.creating) initializeDeadlines(set);
  if (context.stored !== undefined) {
    if (isPlainObject(set.properties)) set.properties = dropModelDefaults(set.properties, context);
    rescheduleDeadlines(set, change.precondition, context.stored);
  }
  if (lon !== undefined || lat !== undefined) setLocation(change, values, context.stored);
  return change;
}

/**
 * Drops keys that repeat the model's value: a client that sends back what it read does not override the model
 * (reference/devices.md#model-properties).
 */
function dropModelDefaults(given: Values, { stored = {}, linked = {} }: StoredContext): Values {
  const inherited = linked.id_model?.properties;
  if (!isPlainObject(inherited)) return given;
  const before = isPlainObject(stored.properties) ? stored.properties : {};
  const own: Values = Object.create(null) as Values;
  for (const [key, value] of Object.entries(given)) {
    const isInherited =
      !Object.hasOwn(before, key) && Object.hasOwn(inherited, key) && isDeepStrictEqual(value, inherited[key]);
    if (!isInherited) own[key] = value;
  }
  return own;
}
