import { type Query, request } from '../api/client.js';
import type { Device } from '../api/interface.js';
import type { ListAnswer } from '../api/list-answer.js';

export type Place = Pick<Device, 'id_developer' | 'name' | 'status' | 'lon' | 'lat'>;

const page_size = 1000;
const parallel_requests = 3;
const fields = 'id_developer,name,status,lon,lat';

interface Options {
  query: Query;
  max_devices: number;
  signal: AbortSignal;
  onProgress(loaded: number, total: number): void;
}

/** Reads the devices that match, page by page, several pages at a time. */
export async function loadPlaces({ query, max_devices, signal, onProgress }: Options): Promise<Place[]> {
  const places: Place[] = [];
  let [loaded, total] = [0, 0];
  async function readPage(offset: number): Promise<void> {
    const page = { ...query, max: page_size, offset, sort: 'id_developer', fields };
    const { total_documents, result } = await request<ListAnswer<Place>>('GET', '/devices/', { query: page, signal });
    if (offset === 0) total = Math.min(total_documents, max_devices);
    places.push(...result.filter(({ lon, lat }) => lon !== undefined && lat !== undefined));
    loaded += result.length;
    onProgress(loaded, total);
  }
  await readPage(0);
  const offsets = Array.from({ length: Math.ceil(total / page_size) - 1 }, (_, page) => (page + 1) * page_size);
  const readRest = async () => {
    for (let offset = offsets.shift(); offset !== undefined; offset = offsets.shift()) await readPage(offset);
  };
  await Promise.all(Array.from({ length: parallel_requests }, readRest));
  return places;
}
