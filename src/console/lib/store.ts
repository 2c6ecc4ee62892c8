import { useSyncExternalStore } from 'react';

/** A value outside of React, which components follow by `useStore`. */
export interface Store<T> {
  read(): T;
  write(value: T): void;
  /** @returns a function that ends the calls of `listener` */
  listen(listener: () => void): () => void;
}

/** Creates a store. */
export function createStore<T>(initial: T): Store<T> {
  const state = { value: initial };
  const listeners = new Set<() => void>();
  return {
    read: () => state.value,
    write(value) {
      state.value = value;
      for (const listener of listeners) listener();
    },
    listen(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

/** Returns the value of a store, and renders again when it changes. */
export function useStore<T>({ listen, read }: Store<T>): T {
  return useSyncExternalStore(listen, read);
}
