import { useCallback, useMemo, useState } from 'react';
import { useSession } from '../api/hooks.js';
import { Filters } from '../lists/filters.js';
import { readFilters } from '../lists/list-query.js';
import { type Circle, readCircle, writeCircle } from '../map/circle.js';
import { MapOfDevices } from '../map/map-preview.js';
import { useAddress } from '../ui/address.js';
import { LinkButton, Toggle } from '../ui/button.js';
import { Page } from '../ui/page.js';

const max_devices = 200_000;

/** The devices that match the filters of the address; a circle drawn by hand becomes one of them. */
export function MapView() {
  const parameters = useSession().filtersOf('/devices/');
  const [search, setSearch, replaceSearch] = useAddress();
  const [isDrawing, setDrawing] = useState(false);
  const filters = readFilters(search, parameters);
  const { geo_lon, geo_lat, geo_distance } = filters;
  const circle = useMemo(() => readCircle({ geo_lon, geo_lat, geo_distance }), [geo_lon, geo_lat, geo_distance]);
  const draw = useCallback(
    (drawn: Circle) => {
      setDrawing(false);
      setSearch(writeCircle(drawn));
    },
    [setSearch],
  );
  return (
    <Page
      title="Map"
      actions={
        <>
          <Toggle label="Draw a circle" isOn={isDrawing} onChange={setDrawing} />
          <LinkButton to="/$plural" params={{ plural: 'devices' }} search={filters} label="Open as a list" />
        </>
      }
    >
      <Filters parameters={parameters} active={filters} onChange={replaceSearch} />
      <div className="map-frame">
        <MapOfDevices query={filters} max_devices={max_devices} circle={circle} isDrawing={isDrawing} onDraw={draw} />
      </div>
    </Page>
  );
}
