import { isDeepStrictEqual } from 'node:util';
import { freeform } from '../../schema/fields/freeform.js';
import { integer, recordedTime, timestamp } from '../../schema/fields/number.js';
import { isPlainObject } from '../../schema/fields/object.js';
import { parent, reference } from '../../schema/fields/reference.js';
import { choice, exactText, name, text, textMatching } from '../../schema/fields/text.js';
import {
  computed,
  type FieldType,
  internal,
  optional,
  required,
  type Values,
  withDefault,
} from '../../schema/fields.js';
import {
  buildMessages,
  defaultToStored,
  defineResource,
  description,
  enabled,
  type StoredChange,
  type StoredContext,
  usualChanges,
} from '../../schema/resource.js';
import { asset } from '../asset.js';
import { isTimeZone } from '../catalogues/time-zones.js';
import { group } from '../group.js';
import { model, streamRetention, summaryRetention } from '../model.js';
import { deriveHidden, findSuffixedPaths, suffixedPaths } from '../suffixed-paths.js';
import { byAlarm, openAlarms } from './alarms.js';
import { byConfig, bySavedFilter } from './configs.js';
import { latest } from './latest.js';
import { latitude, longitude, setLocation, withinRadius } from './location.js';
import { networking, networkingFilters } from './networking.js';
import { computedMembers, formerMembers } from './projection.js';
import {
  byStatus,
  byStreamKind,
  deadlineBounds,
  initializeDeadlines,
  reportedState,
  rescheduleDeadlines,
  statuses,
  statusMeaning,
} from './status.js';

/** A device of a group or of an asset (reference/devices.md#fields). */
export const device = defineResource({
  name: 'device',
  plural: 'devices',
  messages: buildMessages('Device'),
  uniqueNames: false,
  etag: 'version+content',
  computed: computedMembers,
  inherits: { field: 'id_model', plural: model.plural, member: 'properties' },
  defaultSort: 'device',
  events: { ...usualChanges, more: ['status_changed'] },
  example: {
    type: 'pump',
    name: 'Pump',
    id_group: 'Hall 1@demo',
    id_model: 'Pump P2@demo',
    description: 'Main pump',
    properties: { room: 'A 1' },
    sensor: 'pressure',
    firmware: '2.4.1',
    time_zone: 'Europe/Madrid',
    frequency_status: 1440,
    frequency_stream: 60,
    lon: -3.7038,
    lat: 40.4168,
    enabled: true,
    networking: { type: 'ethernet', conn_address: '192.0.2.7' },
  },
  moreExamples: { ofAsset: { type: 'thermometer', name: 'Thermometer', id_asset: 'Cold store@demo' } },
  fields: {
    type: required(text(50), {
      filter: true,
      about: 'Kind of device; `/types/` lists usual ones.',
      catalogue: 'types',
    }),
    name: required(name(), {
      filter: 'sorted',
      about: 'Need not be unique: the second `Pump` becomes `Pump-2@account`.',
    }),
    id_group: parent(group),
    id_asset: parent(asset),
    id_model: reference(model),
    description: { ...description, filter: true },
    properties: optional(freeform({ levels: 5 }), {
      about: 'What you want to know about it; keys of its model are added.',
    }),
    sensor: optional(text(50), {
      filter: true,
      about: 'Kind of sensor; `/sensors/` lists usual ones.',
      catalogue: 'sensors',
    }),
    firmware: optional(text(50), { filter: true, about: 'Version of its firmware.' }),
    checksum: optional(exactText(40), {
      about: 'Key of the HMAC-SHA1 checksums of its streams, exactly 40 characters.',
      example: '0123456789abcdef0123456789abcdef01234567',
    }),
    time_zone: withDefault(timeZone(), 'Europe/Madrid', { about: 'Time zone at its place.', catalogue: 'time_zones' }),
    frequency_status: withDefault(integer({ min: 1 }), 1440, {
      about: 'Minutes within which a status stream is expected.',
      unit: 'minutes',
    }),
    frequency_stream: withDefault(integer({ min: 1 }), 1440, {
      about: 'Minutes within which a data stream is expected.',
      unit: 'minutes',
    }),
    stream_retention_days: streamRetention,
    summary_retention_days: summaryRetention,
    lon: optional(computed(longitude()), {
      about: 'Longitude in degrees east (WGS 84). Comes with `lat`.',
      unit: 'degrees',
    }),
    lat: optional(computed(latitude()), {
      about: 'Latitude in degrees north (WGS 84). Comes with `lon`.',
      unit: 'degrees',
    }),
    enabled,
    networking: optional(networking, { about: 'How it is connected. An update replaces all of it.' }),
  },
  readOnly: {
    status: required(computed(choice(...statuses)), { about: statusMeaning, example: 'ok' }),
    last_stream_at: optional(recordedTime(), {
      about: 'When the last data stream was received; absent before the first.',
    }),
    last_status_at: optional(recordedTime(), {
      about: 'When the last status stream was received; absent before the first.',
    }),
    stream_due_at: optional(recordedTime(), {
      about: 'Time by which the next data stream is due; absent before the first.',
    }),
    status_due_at: optional(recordedTime(), {
      about: 'Time by which the next status stream is due; absent before the first.',
    }),
  },
  requested: { latest, alarms: openAlarms },
  hidden: {
    location: optional(internal('point')),
    suffixed_paths: suffixedPaths,
    ...deadlineBounds,
    ...reportedState,
    /** When a condition of an alarm rule was found to be met: without it streams need not look alarms up. */
    condition_met_at: optional(timestamp()),
    /** Differs whenever data streams were stored or deleted (`src/objects/values/last-stream-cache.ts`). */
    stream_revision: optional(internal()),
  },
  filters: [byStatus, byStreamKind, byAlarm, byConfig, withinRadius, ...networkingFilters, bySavedFilter],
  pathFilters: ['properties', 'latest'],
  sorts: {
    device: ['id_developer'],
    lon: ['location.coordinates.0'],
    lat: ['location.coordinates.1'],
  },
  legacy: {
    computed: formerMembers,
    isMalformedIdBadParameter: true,
    aliases: { id_assets: 'id_asset' },
    blankAsNull: ['id_group', 'id_asset', 'id_assets', 'id_model'],
  },
  allOrNone: ['lon', 'lat'],
  isForDevices: true,
  readModifyWrite: ['lon', 'lat', 'properties', 'frequency_stream', 'frequency_status'],
  toStored,
});

function timeZone(): FieldType {
  // no enum: GMT+0, GMT-0 and GMT0 become one name in most languages
  return textMatching(100, isTimeZone, 'a time zone listed at /time_zones/');
}

function toStored(values: Values, context: StoredContext): StoredChange {
  const { lon, lat, ...plain } = values;
  const { set, unset, faults } = defaultToStored(plain);
  const change = { set, unset: [...unset], faults, precondition: {} };
  if (context.creating) initializeDeadlines(set);
  if (context.stored !== undefined) {
    // without a model, what was sent is all the device has
    if (isPlainObject(set.properties) && values.id_model !== null)
      set.properties = dropModelDefaults(set.properties, context);
    rescheduleDeadlines(set, change.precondition, context.stored);
  }
  if (lon !== undefined || lat !== undefined) setLocation(change, values, context.stored);
  return deriveHidden(change, 'properties', 'suffixed_paths', findSuffixedPaths);
}

/**
 * Drops keys that repeat the model's value: a client that sends back what it read does not override the model
 * (reference/devices.md#model-properties).
 */
function dropModelDefaults(properties: Values, { stored = {}, linked = {} }: StoredContext): Values {
  const inherited = linked.id_model?.properties;
  if (!isPlainObject(inherited)) return properties;
  const before = isPlainObject(stored.properties) ? stored.properties : {};
  const own: Values = Object.create(null) as Values;
  for (const [key, value] of Object.entries(properties)) {
    const isInherited =
      !Object.hasOwn(before, key) && Object.hasOwn(inherited, key) && isDeepStrictEqual(value, inherited[key]);
    if (!isInherited) own[key] = value;
  }
  return own;
}
