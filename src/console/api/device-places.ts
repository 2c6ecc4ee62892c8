import { type Query, request } from './client.js';
import type { Device } from './interface.js';
import type { ListAnswer } from './list-answer.js';

/** A device on the map. */
export type Place = Pick<Device, 'id_developer' | 'name' | 'status' | 'lon' | 'lat'>;

const page_size = 1000;
const parallel_requests = 3;
const fields = 'id_developer,name,status,lon,lat';

interface Options {
  query: Query;
  max_devices: number;
  /** Asks for the fields of the map only, where the interface can leave out the others. */
  hasFields: boolean;
  signal: AbortSignal;
  onProgress(loaded: number, total: number): void;
}

/** Reads the devices that match, page by page, several pages at a time. */
export async function loadPlaces({ query, max_devices, hasFields, signal, onProgress }: Options): Promise<Place[]> {
  const readPage = (offset: number) =>
    request<ListAnswer<Place>>('GET', '/devices/', {
      query: { ...query, max: page_size, offset, sort: 'id_developer', ...(hasFields && { fields }) },
      signal,
    });
  const first = await readPage(0);
  const total = Math.min(first.total_documents, max_devices);
  const places = first.result.filter(isPlaced);
  let loaded = first.result.length;
  onProgress(loaded, total);
  const offsets = Array.from({ length: Math.ceil(total / page_size) - 1 }, (_, page) => (page + 1) * page_size);
  const readRest = async () => {
    for (let offset = offsets.shift(); offset !== undefined; offset = offsets.shift()) {
      const { result } = await readPage(offset);
      places.push(...result.filter(isPlaced));
      loaded += result.length;
      onProgress(loaded, total);
    }
  };
  await Promise.all(Array.from({ length: parallel_requests }, readRest));
  return places;
}

function isPlaced({ lon, lat }: Place): boolean {
  return lon !== undefined && lat !== undefined;
}
