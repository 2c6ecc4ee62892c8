import { isIPv4, isIPv6 } from 'node:net';
import { isDeepStrictEqual } from 'node:util';
import { isTimeZone, timeZones } from '../../catalogues/time-zones.js';
import type { FieldErrors } from '../../errors.js';
import {
  choice,
  computed,
  exactText,
  freeform,
  integer,
  isPlainObject,
  name,
  number,
  object,
  optional,
  parent,
  point,
  reference,
  required,
  type Schema,
  text,
  textMatching,
  timestamp,
  type Values,
  withDefault,
} from '../../schema/fields.js';
import { type Filter, fieldFilter } from '../../schema/filters.js';
import {
  defaultToStored,
  defineResource,
  description,
  enabled,
  type StoredChange,
  type StoredContext,
  statusMessages,
} from '../../schema/resource.js';
import { asset } from '../asset.js';
import { group } from '../group.js';
import { model } from '../model.js';
import { computedMembers } from './projection.js';
import { byStatus, byStreamKind, type DeadlineKind, deadlineKinds, statuses } from './status.js';

const networkTypes = ['ethernet', 'gprs', 'wifi', 'zigbee'] as const;
const networks = choice(...networkTypes);

/** Which networks carry which keys (§2.6). */
const keysByNetwork: Readonly<Record<string, readonly string[]>> = {
  conn_address: ['ethernet', 'wifi', 'zigbee'],
  sim_card: ['gprs'],
  telephone_number: ['gprs'],
  carrier: ['gprs'],
};

const hex = '[0-9A-Fa-f]';
const macAddresses = [
  `${hex}{12}(?:${hex}{4})?`,
  `${hex}{4}(?:\\.${hex}{4}){2,3}`,
  ...[':', '-'].map((mark) => `${hex}{2}(?:${mark}${hex}{2}){5}(?:(?:${mark}${hex}{2}){2})?`),
].map((pattern) => `^(?:${pattern})$`);
const macAddress = new RegExp(macAddresses.join('|'));

/** IPv4, IPv6, EUI-48 or EUI-64 in the usual spellings (contract 3). */
function isNetworkAddress(given: string): boolean {
  return isIPv4(given) || isIPv6(given) || macAddress.test(given);
}

const networking = object(
  {
    type: required(networks),
    conn_address: optional(
      textMatching(50, isNetworkAddress, 'an IPv4, IPv6 or MAC address', {
        anyOf: [{ format: 'ipv4' }, { format: 'ipv6' }, ...macAddresses.map((pattern) => ({ pattern }))],
      }),
    ),
    sim_card: optional(exactText(18)),
    telephone_number: optional(text(15)),
    carrier: optional(text(50)),
  },
  (given, path, faults) => {
    for (const [key, types] of Object.entries(keysByNetwork)) {
      const { type, [key]: value } = given;
      if (value === undefined || value === null || typeof type !== 'string' || types.includes(type)) continue;
      faults[`${path}.${key}`] ??= `is only for ${types.join(', ')}`;
    }
  },
  { anyOf: networkTypes.map(membersOf), examples: [{ type: 'ethernet', conn_address: '192.0.2.7' }] },
);

/** What an object for one network may hold: null counts as absent. */
function membersOf(type: string): Schema {
  const others = Object.keys(keysByNetwork).filter((key) => keysByNetwork[key]?.includes(type) === false);
  return { properties: { type: { const: type }, ...Object.fromEntries(others.map((key) => [key, { type: 'null' }])) } };
}

/** The radius that MongoDB's own spherical queries use. */
const earth_radius_m = 6_378_100;

/** Devices within `geo_distance` metres of a point; a circle of half the earth holds every place (§4.6.1). */
const withinRadius: Filter = {
  params: { geo_lon: longitude(), geo_lat: latitude(), geo_distance: number({ min: 0 }) },
  index: { paths: ['location'], geo: true },
  check: (given, faults) => {
    const missing = ['geo_lon', 'geo_lat', 'geo_distance'].filter((key) => !(key in given) && !(key in faults));
    if (missing.length === 3) return;
    for (const key of missing) faults[key] = 'geo_lon, geo_lat and geo_distance come together';
  },
  conditions: ({ geo_lon, geo_lat, geo_distance }) => {
    const radius = Number(geo_distance) / earth_radius_m;
    if (radius >= Math.PI) return { location: { $exists: true } };
    return { location: { $geoWithin: { $centerSphere: [[geo_lon, geo_lat], radius] } } };
  },
};

function longitude() {
  return number({ min: -180, max: 180 });
}

function latitude() {
  return number({ min: -90, max: 90 });
}

/** May be later than any time that a client can send. */
function deadline() {
  return { ...timestamp(), shown: number({ min: 0 }).schema };
}

function timeZone() {
  const kind = textMatching(100, isTimeZone, 'a time zone listed at /time_zones/');
  return { ...kind, schema: { title: 'iana_time_zone', type: 'string', enum: timeZones } };
}

/** A device of a group or of an asset (§2.6). */
export const device = defineResource({
  name: 'device',
  plural: 'devices',
  messages: statusMessages('Device'),
  uniqueNames: false,
  etag: 'version+content',
  malformedIdOnDelete: 'badParameter',
  computed: computedMembers,
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
  hidden: {
    location: optional(point()),
    // around each deadline, which moves too often to be in an index
    stream_safe_until: required(deadline()),
    status_safe_until: required(deadline()),
    stream_late_from: required(deadline()),
    status_late_from: required(deadline()),
  },
  filters: [
    byStatus,
    byStreamKind,
    withinRadius,
    fieldFilter('conn_address', 'networking.conn_address', text(50)),
    fieldFilter('conn_type', 'networking.type', networks),
    fieldFilter('sim_card', 'networking.sim_card', exactText(18)),
    fieldFilter('telephone_number', 'networking.telephone_number', text(15)),
    fieldFilter('carrier', 'networking.carrier', text(50)),
  ],
  sorts: {
    device: ['id_developer'],
    lon: ['location.coordinates.0'],
    lat: ['location.coordinates.1'],
  },
  allOrNone: ['lon', 'lat'],
  readModifyWrite: ['lon', 'lat', 'properties', 'frequency_stream', 'frequency_status'],
  toStored,
});

function toStored(values: Values, known: StoredContext): StoredChange {
  const { lon, lat, ...plain } = values;
  const packed = defaultToStored(plain);
  const { set, faults } = packed;
  const unset = [...packed.unset];
  const guard: Values = {};
  if (known.creating) for (const kind of deadlineKinds) setDeadline(set, kind, 0, 0);
  if (known.stored !== undefined) {
    if (isPlainObject(set.properties)) set.properties = dropModelDefaults(set.properties, known);
    moveDeadlines(set, guard, known.stored);
  }
  if (lon !== undefined || lat !== undefined) setLocation(set, unset, faults, values, known.stored);
  return { set, unset, faults, precondition: guard };
}

/** A key sent back with the value that the model gives stays the model's (contract 5). */
function dropModelDefaults(given: Values, { stored = {}, linked = {} }: StoredContext): Values {
  const ofModel = linked.id_model?.properties;
  if (!isPlainObject(ofModel)) return given;
  const before = isPlainObject(stored.properties) ? stored.properties : {};
  const own: Values = Object.create(null) as Values;
  for (const [key, value] of Object.entries(given)) {
    const stays = !Object.hasOwn(before, key) && Object.hasOwn(ofModel, key) && isDeepStrictEqual(value, ofModel[key]);
    if (!stays) own[key] = value;
  }
  return own;
}

/** A new period counts from the last stream received (contract 8). */
function moveDeadlines(set: Values, guard: Values, stored: Values): void {
  for (const kind of deadlineKinds) {
    const period_min = set[`frequency_${kind}`];
    const last_at = stored[`last_${kind}_at`];
    if (typeof period_min !== 'number') continue;
    guard[`last_${kind}_at`] = last_at ?? null;
    if (typeof last_at === 'number') setDeadline(set, kind, last_at, period_min);
  }
}

/** @param last_at epoch seconds, 0 before the first stream */
function setDeadline(set: Values, kind: DeadlineKind, last_at: number, period_min: number): void {
  const due_at = last_at + period_min * 60;
  Object.assign(set, {
    [`${kind}_due_at`]: due_at,
    [`${kind}_safe_until`]: due_at,
    [`${kind}_late_from`]: due_at + period_min * 30,
  });
}

/** lon and lat are one GeoJSON point; a device that has a place may get one of them changed (contract 5). */
function setLocation(
  set: Values,
  unset: string[],
  faults: FieldErrors,
  values: Values,
  stored: Values | undefined,
): void {
  const [storedLon, storedLat] = coordinates(stored?.location);
  const { lon = storedLon, lat = storedLat } = values;
  if (typeof lon === 'number' && typeof lat === 'number') set.location = { type: 'Point', coordinates: [lon, lat] };
  else if (typeof lon === 'number') faults.lat = 'lon and lat come together';
  else if (typeof lat === 'number') faults.lon = 'lon and lat come together';
  else unset.push('location');
}

function coordinates(location: unknown): readonly unknown[] {
  return isPlainObject(location) && Array.isArray(location.coordinates) ? location.coordinates : [];
}
