import { number } from '../../schema/fields/number.js';
import { isPlainObject } from '../../schema/fields/object.js';
import { type FieldType, type Values, withDocumentation } from '../../schema/fields.js';
import type { Filter } from '../../schema/filters.js';
import type { StoredChange } from '../../schema/resource.js';

/** Degrees east. */
export function longitude(): FieldType {
  return number({ min: -180, max: 180 });
}

/** Degrees north. */
export function latitude(): FieldType {
  return number({ min: -90, max: 90 });
}

/** The radius of MongoDB's spherical queries. */
const earth_radius_m = 6_378_100;

const together = '`geo_lon`, `geo_lat` and `geo_distance` come together.';

/** Devices within `geo_distance` metres of a point (reference/lists.md#geo). */
export const withinRadius: Filter = {
  params: {
    geo_lon: withDocumentation(longitude(), {
      about: `Longitude of the centre in degrees east. ${together}`,
      unit: 'degrees',
      example: -3.7,
    }),
    geo_lat: withDocumentation(latitude(), {
      about: `Latitude of the centre in degrees north. ${together}`,
      unit: 'degrees',
      example: 40.4,
    }),
    geo_distance: withDocumentation(number({ min: 0 }), {
      about: `Radius in metres. ${together}`,
      example: 50000,
      unit: 'metres',
    }),
  },
  index: { paths: ['location'], geo: true },
  check: (values, faults) => {
    const missing = ['geo_lon', 'geo_lat', 'geo_distance'].filter((key) => !(key in values) && !(key in faults));
    if (missing.length === 3) return;
    for (const key of missing) faults[key] = 'geo_lon, geo_lat and geo_distance come together';
  },
  conditions: ({ geo_lon, geo_lat, geo_distance }) => {
    const radius = Number(geo_distance) / earth_radius_m;
    // half the circumference reaches every point, but MongoDB refuses such a radius
    if (radius >= Math.PI) return { location: { $exists: true } };
    return { location: { $geoWithin: { $centerSphere: [[geo_lon, geo_lat], radius] } } };
  },
};

/**
 * Stores `lon` and `lat` of `values` as one GeoJSON point (reference/devices.md#location). An update may give one of
 * them if the stored device has both.
 */
export function setLocation({ set, unset, faults }: MutableChange, values: Values, stored: Values | undefined): void {
  const [storedLon, storedLat] = coordinates(stored?.location);
  const { lon = storedLon, lat = storedLat } = values;
  if (typeof lon === 'number' && typeof lat === 'number') set.location = { type: 'Point', coordinates: [lon, lat] };
  else if (typeof lon === 'number') faults.lat = 'lon and lat come together';
  else if (typeof lat === 'number') faults.lon = 'lon and lat come together';
  else unset.push('location');
}

type MutableChange = Pick<StoredChange, 'set' | 'faults'> & { unset: string[] };

function coordinates(location: unknown): readonly unknown[] {
  return isPlainObject(location) && Array.isArray(location.coordinates) ? location.coordinates : [];
}
