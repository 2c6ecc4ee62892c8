const item = 'device-platform.apikey';
const listeners = new Set<() => void>();
const state: { notice: string | undefined } = { notice: undefined };

/** Returns the key of this tab. It is kept in `sessionStorage`, which ends with the tab. */
export function readKey(): string | undefined {
  return sessionStorage.getItem(item) ?? undefined;
}

/** Keeps a key for this tab. */
export function storeKey(key: string): void {
  sessionStorage.setItem(item, key);
  state.notice = undefined;
  notify();
}

/** Forgets the key; `notice` is shown above the form for the next one. */
export function dropKey(notice?: string): void {
  if (readKey() === undefined) return;
  sessionStorage.removeItem(item);
  state.notice = notice;
  notify();
}

/** Returns the reason why the last key was dropped. */
export function readNotice(): string | undefined {
  return state.notice;
}

/** Calls `listener` after every change of the key. @returns a function that ends this */
export function listenToKey(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function notify(): void {
  for (const listener of listeners) listener();
}
