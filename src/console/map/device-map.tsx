import 'leaflet/dist/leaflet.css';
import './map.css';
import * as leaflet from 'leaflet';
import { useEffect, useRef, useState } from 'react';
import Supercluster from 'supercluster';
import { feature } from 'topojson-client';
import type { Topology } from 'topojson-specification';
import outlineUrl from 'world-atlas/countries-110m.json?url';
import { pageSettings } from '../api/page-settings.js';
import { describeAlarms, type OpenAlarms, severities, shownStatuses } from '../api/resources.js';
import { useScheme } from '../ui/theme.js';
import type { Circle } from './circle.js';
import type { Place } from './device-places.js';

interface DeviceMapProps {
  places: readonly Place[];
  circle?: Circle | undefined;
  /** Shows the part of the world that has the first places. */
  isFitted?: boolean;
  /** A drag draws a circle instead of moving the map. */
  isDrawing?: boolean;
  onDraw?(circle: Circle): void;
  onOpen(id: string): void;
  /** Returns lines of text that are shown beside a device under the pointer or with the focus. */
  readValues(id: string): Promise<readonly string[]>;
  label: string;
}

type Counts = Record<string, number>;
type Clusters = Supercluster<{ place: Place }, Counts>;

/** The markers on the map, by cluster or device. */
type Markers = Map<string, leaflet.Marker>;

const cluster_radius_px = 60;
const max_markers_per_frame = 40;
const max_zoom = 18;
const max_fitted_zoom = 9;

/** Devices on a map, clustered, in the colour of the worst status that many of them have. */
export function DeviceMap({ places, circle, isFitted = false, isDrawing = false, ...props }: DeviceMapProps) {
  const { onDraw, onOpen, readValues, label } = props;
  const container = useRef<HTMLDivElement>(null);
  const hasFitted = useRef(false);
  const [map, setMap] = useState<leaflet.Map>();
  const scheme = useScheme();

  useEffect(() => {
    if (container.current === null) return;
    const created = createMap(container.current);
    setMap(created);
    // on a map that has been removed, the timer of Leaflet that ends a zoom fails, and so does a frame it has asked for.
    // Leaflet does not cancel all of its frames, so the map stays until they have been drawn
    let isZooming = false;
    created.on('zoomstart', () => (isZooming = true)).on('moveend', () => (isZooming = false));
    const remove = () => void requestAnimationFrame(() => requestAnimationFrame(() => created.remove()));
    return () => void (isZooming ? created.once('moveend', remove) : remove());
  }, []);

  // biome-ignore lint/correctness/useExhaustiveDependencies: the colour is read from the style sheet
  useEffect(() => {
    if (map === undefined || pageSettings.tiles !== '') return;
    const closed = new AbortController();
    const outline = drawOutline(map, closed.signal);
    return () => {
      closed.abort();
      void outline.then((layer) => layer?.remove());
    };
  }, [map, scheme]);

  useEffect(() => {
    if (map === undefined) return;
    const clusters = buildClusters(places);
    const layer = leaflet.layerGroup().addTo(map);
    const shown: Markers = new Map();
    let frame = 0;
    const draw = () => {
      cancelAnimationFrame(frame);
      const waiting = updateMarkers({ map, layer, clusters, shown, onOpen, readValues });
      const addSome = () => {
        for (const add of waiting.splice(0, max_markers_per_frame)) add();
        if (waiting.length > 0) frame = requestAnimationFrame(addSome);
      };
      addSome();
    };
    draw();
    map.on('moveend', draw);
    return () => {
      cancelAnimationFrame(frame);
      map.off('moveend', draw);
      layer.remove();
    };
  }, [map, places, onOpen, readValues]);

  useEffect(() => {
    if (map === undefined || !isFitted || hasFitted.current || places.length === 0) return;
    hasFitted.current = true;
    const bounds = leaflet.latLngBounds(places.map(({ lat = 0, lon = 0 }) => [lat, lon]));
    map.fitBounds(bounds, { maxZoom: max_fitted_zoom, padding: [24, 24], animate: false });
  }, [map, places, isFitted]);

  useEffect(() => {
    if (map === undefined || circle === undefined) return;
    const shape = leaflet
      .circle([circle.lat, circle.lon], { radius: circle.distance_m, interactive: false })
      .addTo(map);
    map.fitBounds(shape.getBounds());
    return () => {
      shape.remove();
    };
  }, [map, circle]);

  useEffect(() => {
    if (map === undefined || !isDrawing || onDraw === undefined) return;
    return listenToDrawing(map, onDraw);
  }, [map, isDrawing, onDraw]);

  // Leaflet adds classes of its own, so that these must never change
  return <section ref={container} className="map" data-drawing={isDrawing} aria-label={label} />;
}

function createMap(element: HTMLElement): leaflet.Map {
  const isAnimated = !matchMedia('(prefers-reduced-motion: reduce)').matches;
  const map = leaflet.map(element, {
    fadeAnimation: isAnimated,
    inertia: isAnimated,
    markerZoomAnimation: isAnimated,
    zoomAnimation: isAnimated,
    preferCanvas: true,
    zoomControl: true,
    attributionControl: false,
    worldCopyJump: true,
    minZoom: 1,
    maxZoom: max_zoom,
  });
  map.setView([25, 10], 2);
  if (pageSettings.tiles !== '') leaflet.tileLayer(pageSettings.tiles, { maxZoom: max_zoom }).addTo(map);
  return map;
}

/** Draws the built-in outline of the world, which is a file of the console. */
async function drawOutline(map: leaflet.Map, closed: AbortSignal): Promise<leaflet.Layer | undefined> {
  const topology = await fetch(outlineUrl)
    .then((response) => response.json() as Promise<Topology>)
    // the devices are shown without it
    .catch(() => undefined);
  const countries = topology?.objects.countries;
  if (closed.aborted || topology === undefined || countries === undefined) return undefined;
  const { color } = getComputedStyle(map.getContainer());
  const style = { color, weight: 0.7, opacity: 0.55, fillOpacity: 0.09 };
  return leaflet
    .geoJSON(feature(topology, countries), { style, interactive: false, coordsToLatLng: createUnwrapper() })
    .addTo(map)
    .bringToBack();
}

/** Continues outlines past 180°, where they would else jump to the other side of the map. */
function createUnwrapper(): (coordinates: [number, number] | [number, number, number]) => leaflet.LatLng {
  const previous = { lon: 0 };
  return ([lon, lat]) => {
    const isPole = lat < -89;
    const jump = lon - previous.lon;
    const unwrapped = !isPole && Math.abs(jump) > 300 ? lon - Math.sign(jump) * 360 : lon;
    previous.lon = unwrapped;
    return leaflet.latLng(lat, unwrapped);
  };
}

function buildClusters(places: readonly Place[]): Clusters {
  const clusters: Clusters = new Supercluster<{ place: Place }, Counts>({
    radius: cluster_radius_px,
    maxZoom: max_zoom - 1,
    map: ({ place }) => ({ [place.status]: 1, ...place.alarms }),
    reduce(sum, counts) {
      for (const [status, count] of Object.entries(counts)) sum[status] = (sum[status] ?? 0) + count;
    },
  });
  return clusters.load(
    places.map((place) => ({
      type: 'Feature',
      properties: { place },
      geometry: { type: 'Point', coordinates: [place.lon ?? 0, place.lat ?? 0] },
    })),
  );
}

interface Drawing extends Pick<DeviceMapProps, 'onOpen' | 'readValues'> {
  map: leaflet.Map;
  layer: leaflet.LayerGroup;
  clusters: Clusters;
  shown: Markers;
}

/** Removes the markers that the map does not show any more. @returns functions that each add a missing one */
function updateMarkers({ map, layer, clusters, shown, onOpen, readValues }: Drawing): (() => void)[] {
  const bounds = map.getBounds().pad(0.1);
  const visible = clusters.getClusters(
    [bounds.getWest(), bounds.getSouth(), bounds.getEast(), bounds.getNorth()],
    Math.round(map.getZoom()),
  );
  const keyOf = ({ id, properties }: (typeof visible)[number]) =>
    // the number of a cluster is that of one zoom
    'cluster' in properties ? `cluster ${id}` : properties.place.id_developer;
  const wanted = new Map(visible.map((feature) => [keyOf(feature), feature]));
  for (const [key, marker] of shown) {
    if (wanted.has(key)) continue;
    layer.removeLayer(marker);
    shown.delete(key);
  }
  const missing = [...wanted].filter(([key]) => !shown.has(key));
  return missing.map(([key, { properties, geometry, id }]) => () => {
    const [lon = 0, lat = 0] = geometry.coordinates;
    const marker =
      'cluster' in properties
        ? clusterMarker(lat, lon, properties.point_count, properties as unknown as Counts)
        : placeMarker(lat, lon, properties.place, readValues);
    const open = () => {
      if ('cluster' in properties)
        map.setView([lat, lon], Math.min(clusters.getClusterExpansionZoom(Number(id)), max_zoom));
      else onOpen(properties.place.id_developer);
    };
    marker.on('click', open);
    marker.on('keydown', ({ originalEvent }) => {
      if (originalEvent.key === 'Enter' || originalEvent.key === ' ') open();
    });
    marker.addTo(layer);
    shown.set(key, marker);
  });
}

function clusterMarker(lat: number, lon: number, count: number, counts: Counts): leaflet.Marker {
  const worst = shownStatuses.toReversed().find((status) => (counts[status] ?? 0) * 10 >= count) ?? 'ok';
  const text = document.createElement('span');
  text.textContent = count >= 10_000 ? `${Math.round(count / 1000)}k` : String(count);
  const size = count < 10 ? 30 : count < 1000 ? 38 : 46;
  const icon = leaflet.divIcon({
    html: text,
    className: `cluster status-${worst} ${alarmClass(counts)}`,
    iconSize: [size, size],
  });
  return leaflet.marker([lat, lon], { icon, title: `${count} devices${describeOpen(counts)}` });
}

/** Alarms of devices are beside their statuses in the counts. */
function describeOpen(counts: Partial<OpenAlarms> = {}): string {
  const text = describeAlarms(counts);
  return text === '' ? '' : `, open alarms: ${text}`;
}

function alarmClass(counts: Partial<OpenAlarms> = {}): string {
  const worst = severities.find((severity) => counts[severity]);
  return worst === undefined ? '' : `alarm alarm-${worst}`;
}

function placeMarker(
  lat: number,
  lon: number,
  { id_developer, name, status, alarms }: Place,
  readValues: DeviceMapProps['readValues'],
): leaflet.Marker {
  const icon = leaflet.divIcon({
    html: false,
    className: `place status-${status} ${alarmClass(alarms)}`,
    iconSize: [24, 24],
  });
  const label = name + describeOpen(alarms);
  const marker = leaflet.marker([lat, lon], { icon }).bindTooltip(buildTooltip([label]), { direction: 'top' });
  marker.on('add', () => marker.getElement()?.setAttribute('aria-label', label));
  marker.on('tooltipopen', () => {
    const show = (values: readonly string[]) => void marker.setTooltipContent(buildTooltip([label, ...values]));
    // the name stays if they cannot be read
    readValues(id_developer).then(show, () => undefined);
  });
  return marker;
}

/** Builds a line of text each, of which the first stands out. */
function buildTooltip(lines: readonly string[]): HTMLElement {
  const element = document.createElement('div');
  for (const [index, line] of lines.entries()) {
    const text = document.createElement(index === 0 ? 'strong' : 'div');
    text.textContent = line;
    element.append(text);
  }
  return element;
}

/** Draws a circle from where a drag begins to where it ends. @returns a function that gives the drag back to the map */
function listenToDrawing(map: leaflet.Map, onDraw: (circle: Circle) => void): () => void {
  const container = map.getContainer();
  const listeners = new AbortController();
  let shape: leaflet.Circle | undefined;
  const listen = (
    type: 'pointerdown' | 'pointermove' | 'pointerup' | 'pointercancel',
    on: (event: PointerEvent) => void,
  ) => container.addEventListener(type, on, { signal: listeners.signal });
  const cancel = () => {
    shape?.remove();
    shape = undefined;
  };
  listen('pointerdown', (event) => {
    if (!event.isPrimary || (event.target as Element).closest('.leaflet-control') !== null) return;
    // also what begins on a marker does not reach it
    container.setPointerCapture(event.pointerId);
    shape = leaflet.circle(map.mouseEventToLatLng(event), { radius: 0 }).addTo(map);
  });
  listen('pointermove', (event) => {
    if (event.isPrimary) shape?.setRadius(map.distance(shape.getLatLng(), map.mouseEventToLatLng(event)));
  });
  listen('pointerup', (event) => {
    if (!event.isPrimary || shape === undefined) return;
    const { lat, lng } = shape.getLatLng().wrap();
    const distance_m = Math.round(shape.getRadius());
    cancel();
    if (distance_m > 0) onDraw({ lat, lon: lng, distance_m });
  });
  listen('pointercancel', cancel);
  map.dragging.disable();
  return () => {
    listeners.abort();
    cancel();
    map.dragging.enable();
  };
}
