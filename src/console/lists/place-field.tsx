import { useCallback, useMemo, useState } from 'react';
import { type Circle, circleFilters, readCircle, writeCircle } from '../map/circle.js';
import { MapOfDevices } from '../map/map-preview.js';
import { Button, Toggle } from '../ui/button.js';
import { FilterField, type FilterFieldsProps } from './filter-field.js';

const max_devices = 5000;

/** A circle, drawn on a map or typed. */
export function PlaceField({ parameters, values, onChange }: FilterFieldsProps) {
  const [isMapShown, setMapShown] = useState(false);
  const { geo_lon, geo_lat, geo_distance } = values;
  const circle = useMemo(() => readCircle({ geo_lon, geo_lat, geo_distance }), [geo_lon, geo_lat, geo_distance]);
  const draw = useCallback((drawn: Circle) => onChange(writeCircle(drawn)), [onChange]);
  return (
    <fieldset>
      <legend>Place</legend>
      <div className="grid place-fields">
        {parameters.map(({ name, schema }) => (
          <FilterField key={name} name={name} schema={schema} values={values} onChange={onChange} />
        ))}
      </div>
      <div className="row">
        <Toggle label="Draw the circle on a map" isOn={isMapShown} onChange={setMapShown} />
        <Button
          label="Any place"
          onClick={() => onChange(Object.fromEntries(circleFilters.map((name) => [name, undefined])))}
        />
      </div>
      {isMapShown && (
        <div className="place-map">
          <MapOfDevices
            label="Map to draw on"
            query={everywhere}
            max_devices={max_devices}
            circle={circle}
            isDrawing
            isFitted={circle === undefined}
            onDraw={draw}
          />
        </div>
      )}
    </fieldset>
  );
}

const everywhere = {};
