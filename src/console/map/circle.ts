/** A circle on the map, as the filters of the interface name it. */
export interface Circle {
  lon: number;
  lat: number;
  distance_m: number;
}

/** Reads the filters of a circle; undefined unless all are there and numbers. */
export function readCircle({ geo_lon, geo_lat, geo_distance }: Readonly<Record<string, unknown>>): Circle | undefined {
  const read = (value: unknown) => Number(value || Number.NaN);
  const circle = { lon: read(geo_lon), lat: read(geo_lat), distance_m: read(geo_distance) };
  return Object.values(circle).every(Number.isFinite) ? circle : undefined;
}

/** Writes a circle as filters. */
export function writeCircle({ lon, lat, distance_m }: Circle) {
  return { geo_lon: lon.toFixed(5), geo_lat: lat.toFixed(5), geo_distance: String(distance_m) };
}

/** The filters of a circle. */
export const circleFilters: readonly string[] = ['geo_lon', 'geo_lat', 'geo_distance'];
