import { createContext, use } from 'react';
import type { Interface } from './document.js';
import type { Self } from './interface.js';
import type { ResourceType } from './resources.js';

/** The interface as the key may use it, and the owner of the key; all views share them after the sign-in. */
export interface Session extends Interface {
  self: Self;
}

export const SessionContext = createContext<Session | undefined>(undefined);

/** Returns the session. @throws Error outside of the signed-in part */
export function useSession(): Session {
  const session = use(SessionContext);
  if (session === undefined) throw new Error('not signed in');
  return session;
}

/** Returns those types whose lists the key may read. */
export function useReadable(types: readonly ResourceType[]): ResourceType[] {
  const { can } = useSession();
  return types.filter(({ list_path }) => can('GET', list_path));
}
