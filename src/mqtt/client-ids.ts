import type { Session } from './session.js';

const max_offline_sessions = 10;

interface ClientIdBinding {
  owner: string;
  live: Set<Session>;
  /** The session outlasts its connection (clean session off). */
  isPersistent: boolean;
}

/** A client id that was bound for a session. */
export interface BoundClientId {
  /** Live sessions to take over. */
  previous: readonly Session[];
  /** A persistent session of the owner continues. */
  isResumed: boolean;
}

/** The client ids of one account, each bound to its owner while a connection or a persistent session uses it. */
export interface ClientIds {
  /** Binds the id of a session. @returns undefined if another owner has the id */
  bind(session: Session, isPersistent: boolean): BoundClientId | undefined;
  /** Ends a bound session; if it is persistent, its id stays bound. */
  leave(session: Session): void;
  /** Owners of persistent sessions without a connection. */
  ownersWithSessions(): readonly string[];
  /** Releases the ids of an owner's persistent sessions without a connection. */
  forget(owner: string): Promise<void>;
}

/** @param deleteSession deletes the stored state of a persistent session */
export function createClientIds(deleteSession: (client_id: string) => Promise<void>): ClientIds {
  const bindings = new Map<string, ClientIdBinding>();
  /** Client ids by owner, least recently used first. */
  const offlineSessions = new Map<string, Set<string>>();

  function markOnline(owner: string, client_id: string): void {
    const ids = offlineSessions.get(owner);
    ids?.delete(client_id);
    if (ids?.size === 0) offlineSessions.delete(owner);
  }

  async function release(owner: string, client_id: string): Promise<void> {
    markOnline(owner, client_id);
    bindings.delete(client_id);
    await deleteSession(client_id);
  }

  return {
    bind(session, isPersistent) {
      const { client_id, owner } = session;
      const binding = bindings.get(client_id) ?? { owner, live: new Set<Session>(), isPersistent: false };
      if (binding.owner !== owner) return undefined;
      bindings.set(client_id, binding);
      markOnline(owner, client_id);
      const bound = { previous: [...binding.live], isResumed: isPersistent && binding.isPersistent };
      binding.live.add(session);
      binding.isPersistent = isPersistent;
      return bound;
    },
    leave(session) {
      const { client_id, owner } = session;
      const binding = bindings.get(client_id);
      if (binding === undefined || !binding.live.delete(session) || binding.live.size > 0) return;
      if (!binding.isPersistent) {
        bindings.delete(client_id);
        return;
      }
      const ids = offlineSessions.get(owner) ?? new Set<string>();
      offlineSessions.set(owner, ids.add(client_id));
      const [oldest] = ids;
      if (ids.size > max_offline_sessions && oldest !== undefined) void release(owner, oldest);
    },
    ownersWithSessions: () => [...offlineSessions.keys()],
    async forget(owner) {
      for (const client_id of [...(offlineSessions.get(owner) ?? [])]) await release(owner, client_id);
    },
  };
}
