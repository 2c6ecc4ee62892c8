import { createStore } from '../lib/store.js';

const item = 'device-platform.visited';
const max_visited = 8;

/** An object with a page. */
export interface Place {
  plural: string;
  id: string;
  name: string;
}

/** The objects whose pages were shown in this tab, the last one first. */
export const visitedStore = createStore(JSON.parse(sessionStorage.getItem(item) ?? '[]') as readonly Place[]);

/** Puts an object before those that were visited earlier. */
export function noteVisited(place: Place): void {
  const others = visitedStore.read().filter(({ plural, id }) => plural !== place.plural || id !== place.id);
  const places = [place, ...others].slice(0, max_visited);
  sessionStorage.setItem(item, JSON.stringify(places));
  visitedStore.write(places);
}

export function forgetVisited(): void {
  sessionStorage.removeItem(item);
  visitedStore.write([]);
}
