import { createBatcher } from '../../db/batching/batcher.js';
import type { Database } from '../../db/database.js';
import { reasons } from '../connection/reasons.js';
import { type ConnectionChange, findEnding, writeConnections } from '../store/connections.js';
import type { Peers } from './peers.js';
import type { Session } from './session.js';

interface Deps {
  db: Database;
  peers: Pick<Peers, 'id'>;
  /** Aborts when the process ends: what is listed of its connections is deleted all at once. */
  stopped: AbortSignal;
  /** Reports an error that no caller awaits. */
  failed(error: unknown): void;
}

const max_batch_size = 1000;
/** Counts are stored every so many refreshes, at most this many at once. */
const refreshes_per_count = 5;
const max_counted = 2000;

function accountOfChange(change: ConnectionChange): string {
  return change.kind === 'opened' ? change.opened.account : change.key.account;
}

/** Keeps the list of the connections of all instances up to date. */
export type ConnectionList = ReturnType<typeof createConnectionList>;

/** Creates the list of a process. */
export function createConnectionList({ db, peers, stopped, failed }: Deps) {
  const stored = new Map<Session, { messages: number; drops: number }>();
  const submit = createBatcher<ConnectionChange>(
    (changes) => writeConnections(db, changes),
    // one batch after the other, in the order of the changes
    { maxBatchSize: max_batch_size, maxInFlight: 1, accountOf: accountOfChange },
  );
  const keyOf = ({ account, client_id, connection }: Session) => ({ account, client_id, connection });
  let refreshes = 0;

  async function storeCounts(): Promise<void> {
    const changed: ConnectionChange[] = [];
    for (const [session, counts] of stored) {
      const { messages, drops } = session.counts;
      if (counts.messages === messages && counts.drops === drops) continue;
      stored.set(session, { messages, drops });
      changed.push({ kind: 'counted', key: keyOf(session), counts: { messages, drops } });
      if (changed.length === max_counted) break;
    }
    await Promise.all(changed.map(submit));
  }

  return {
    /** Lists a connection until it has ended. @param now epoch seconds */
    add(session: Session, address: string, now: number): void {
      const { permissions, counts } = session;
      stored.set(session, { ...counts });
      const opened = {
        ...keyOf(session),
        ...(permissions.kind === 'device' && { device: permissions.device }),
        ...counts,
        address,
        connected_at: Math.floor(now),
        instance: peers.id,
      };
      submit({ kind: 'opened', opened }).catch(failed);
      const remove = async () => {
        stored.delete(session);
        if (!stopped.aborted) await submit({ kind: 'closed', key: keyOf(session) });
      };
      session.left.then(remove).catch(failed);
    },
    /** Stores what has been counted, and closes the connections that a client of the interface has ended. */
    async refresh(): Promise<void> {
      const ending = new Set(await findEnding(db, peers.id));
      for (const session of stored.keys()) if (ending.has(session.connection)) session.end(reasons.administrative);
      if (++refreshes % refreshes_per_count === 0) await storeCounts();
    },
  };
}
