import { createStore } from '../lib/store.js';

const item = 'device-platform.apikey';

/** The key of this tab, or the reason why the last one was dropped. `sessionStorage` ends with the tab. */
export const keyStore = createStore<{ key?: string; notice?: string | undefined }>(readStored());

function readStored(): { key?: string } {
  const key = sessionStorage.getItem(item);
  return key === null ? {} : { key };
}

export function storeKey(key: string): void {
  sessionStorage.setItem(item, key);
  keyStore.write({ key });
}

/** Forgets the key; `notice` is shown above the form for the next one. */
export function dropKey(notice?: string): void {
  if (keyStore.read().key === undefined) return;
  sessionStorage.removeItem(item);
  keyStore.write({ notice });
}
