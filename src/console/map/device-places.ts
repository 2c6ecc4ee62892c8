import { type Query, request } from '../api/client.js';
import type { Device } from '../api/interface.js';
import { type ListAnswer, type OpenAlarms, type ShownStatus, shownStatusOf } from '../api/resources.js';

export interface Place extends Pick<Device, 'id_developer' | 'name' | 'lon' | 'lat'> {
  status: ShownStatus;
  alarms?: OpenAlarms;
}

/** Devices with a place, among those that were read. */
export interface Places {
  places: readonly Place[];
  read: number;
  /** Number of devices that match. */
  total: number;
}

type PlacedDevice = Pick<Device, 'id_developer' | 'name' | 'status' | 'last_status_at' | 'lon' | 'lat'>;
type Alarmed = Required<Pick<Place, 'id_developer' | 'alarms'>>;

const page_size = 1000;
const parallel_requests = 3;

interface Options {
  query: Query;
  max_devices: number;
  signal: AbortSignal;
  onProgress(loaded: number, total: number): void;
}

/** Reads the devices that match and have a place, and the open alarms of those that have any. */
export async function loadPlaces({ query, ...options }: Options): Promise<Places> {
  const silent = { ...options, onProgress: () => undefined };
  const [devices, alarmed] = await Promise.all([
    readPages<PlacedDevice>({ ...query, fields: 'id_developer,name,status,last_status_at,lon,lat' }, options),
    readPages<Alarmed>({ alarm: 'open', ...query, fields: 'id_developer,alarms' }, silent),
  ]);
  const alarmsOf = new Map(alarmed.entries.map(({ id_developer, alarms }) => [id_developer, alarms]));
  const placed = devices.entries.filter(({ lon, lat }) => lon !== undefined && lat !== undefined);
  const places = placed.map(({ last_status_at, ...place }): Place => {
    const alarms = alarmsOf.get(place.id_developer);
    return { ...place, status: shownStatusOf({ last_status_at, ...place }), ...(alarms && { alarms }) };
  });
  return { places, read: devices.entries.length, total: devices.total };
}

/** Reads devices page by page, several pages at a time. */
async function readPages<T>(
  query: Query,
  { max_devices, signal, onProgress }: Omit<Options, 'query'>,
): Promise<{ entries: T[]; total: number }> {
  const entries: T[] = [];
  let [total, wanted] = [0, 0];
  async function readPage(offset: number): Promise<void> {
    const page = { ...query, max: page_size, offset, sort: 'id_developer' };
    const { total_documents, result } = await request<ListAnswer<T>>('GET', '/devices/', { query: page, signal });
    if (offset === 0) [total, wanted] = [total_documents, Math.min(total_documents, max_devices)];
    entries.push(...result);
    onProgress(entries.length, wanted);
  }
  await readPage(0);
  const offsets = Array.from({ length: Math.ceil(wanted / page_size) - 1 }, (_, page) => (page + 1) * page_size);
  const readRest = async () => {
    for (let offset = offsets.shift(); offset !== undefined; offset = offsets.shift()) await readPage(offset);
  };
  await Promise.all(Array.from({ length: parallel_requests }, readRest));
  return { entries, total };
}
