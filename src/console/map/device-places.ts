import { type Query, request } from '../api/client.js';
import type { Device } from '../api/interface.js';
import type { ListAnswer } from '../api/list-answer.js';
import type { OpenAlarms } from '../api/resources.js';

export type Place = Pick<Device, 'id_developer' | 'name' | 'status' | 'lon' | 'lat'> & { alarms?: OpenAlarms };
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
export async function loadPlaces({ query, ...options }: Options): Promise<Place[]> {
  const silent = { ...options, onProgress: () => undefined };
  const [devices, alarmed] = await Promise.all([
    readPages<Place>({ ...query, fields: 'id_developer,name,status,lon,lat' }, options),
    readPages<Alarmed>({ alarm: 'open', ...query, fields: 'id_developer,alarms' }, silent),
  ]);
  const alarmsOf = new Map(alarmed.map(({ id_developer, alarms }) => [id_developer, alarms]));
  const places = devices.filter(({ lon, lat }) => lon !== undefined && lat !== undefined);
  for (const place of places) {
    const alarms = alarmsOf.get(place.id_developer);
    if (alarms !== undefined) place.alarms = alarms;
  }
  return places;
}

/** Reads devices page by page, several pages at a time. */
async function readPages<T>(query: Query, { max_devices, signal, onProgress }: Omit<Options, 'query'>): Promise<T[]> {
  const devices: T[] = [];
  let total = 0;
  async function readPage(offset: number): Promise<void> {
    const page = { ...query, max: page_size, offset, sort: 'id_developer' };
    const { total_documents, result } = await request<ListAnswer<T>>('GET', '/devices/', { query: page, signal });
    if (offset === 0) total = Math.min(total_documents, max_devices);
    devices.push(...result);
    onProgress(devices.length, total);
  }
  await readPage(0);
  const offsets = Array.from({ length: Math.ceil(total / page_size) - 1 }, (_, page) => (page + 1) * page_size);
  const readRest = async () => {
    for (let offset = offsets.shift(); offset !== undefined; offset = offsets.shift()) await readPage(offset);
  };
  await Promise.all(Array.from({ length: parallel_requests }, readRest));
  return devices;
}
