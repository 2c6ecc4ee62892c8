import { useCallback, useMemo, useState } from 'react';
import { Link, useAddress } from '../address.js';
import { filtersOf } from '../api/document.js';
import { readListState } from '../api/list-query.js';
import { useSession } from '../api/queries.js';
import type { Circle } from '../components/device-map.js';
import { Filters } from '../components/filters.js';
import { Page } from '../components/page.js';
import { PlacedDevices } from '../components/placed-devices.js';

const max_devices = 200_000;

/** The devices that match the filters of the address; a circle drawn by hand becomes one of them. */
export function MapView() {
  const { document } = useSession();
  const [search, setSearch, replaceSearch] = useAddress();
  const [isDrawing, setDrawing] = useState(false);
  const parameters = filtersOf(document, '/devices/');
  const { filters } = readListState(
    search,
    parameters.map(({ name }) => name),
  );
  const { geo_lon, geo_lat, geo_distance } = filters;
  const circle = useMemo<Circle | undefined>(
    () =>
      geo_lon && geo_lat && geo_distance
        ? { lon: Number(geo_lon), lat: Number(geo_lat), distance_m: Number(geo_distance) }
        : undefined,
    [geo_lon, geo_lat, geo_distance],
  );
  const draw = useCallback(
    ({ lon, lat, distance_m }: Circle) => {
      setDrawing(false);
      setSearch({ geo_lon: lon.toFixed(5), geo_lat: lat.toFixed(5), geo_distance: String(distance_m) });
    },
    [setSearch],
  );
  return (
    <Page
      title="Map"
      actions={
        <>
          <button type="button" className="toggle" aria-pressed={isDrawing} onClick={() => setDrawing(!isDrawing)}>
            Draw a circle
          </button>
          <Link to="/$plural" params={{ plural: 'devices' }} search={filters} className="button">
            Open as a list
          </Link>
        </>
      }
    >
      <Filters parameters={parameters} active={filters} onChange={replaceSearch} />
      <div className="map-frame">
        <PlacedDevices query={filters} max_devices={max_devices} circle={circle} isDrawing={isDrawing} onDraw={draw} />
      </div>
    </Page>
  );
}
