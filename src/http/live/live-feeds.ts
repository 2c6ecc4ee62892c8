import type { Database, JobDeps } from '../../db/database.js';
import { AppError } from '../../errors.js';
import { coalesce } from '../../lib/coalesce.js';
import { createShares } from '../../lib/shares.js';
import { findValidKeys, type Principal } from '../../objects/api-keys.js';

export const feedKinds = ['events', 'streams', 'commands'] as const;
export type FeedKind = (typeof feedKinds)[number];

export interface LiveMetrics {
  /** The number of live connections has changed. */
  connections(kind: FeedKind, count: number): void;
  overflowed(kind: FeedKind): void;
}

type FeedOwner = Pick<Principal, 'account' | 'key_id' | 'expires_at'>;

export type LiveFeeds = ReturnType<typeof createLiveFeeds>;
export type LiveConnection = ReturnType<LiveFeeds['admit']>;

const max_live_connections = 1000;
const max_live_connections_per_account = 100;
/** A key is looked up this often; revoking it is to end its feeds within 5 s. */
const key_check_ms = 2000;

interface LiveDeps extends JobDeps {
  /** Sources of the feeds, closed with them. */
  tails: readonly { close(): Promise<void> }[];
  metrics: LiveMetrics;
}

interface Admitted {
  kind: FeedKind;
  owner: FeedOwner;
  ending: AbortController;
}

/** Ends the feeds of keys and tokens that have expired or are revoked. @param now epoch seconds */
async function endRevoked(db: Database, admitted: ReadonlySet<Admitted>, now: number): Promise<void> {
  for (const { owner, ending } of admitted)
    if (owner.expires_at !== undefined && owner.expires_at <= now) ending.abort();
  const keys = new Set([...admitted].flatMap(({ owner: { key_id } }) => key_id ?? []));
  if (keys.size === 0) return;
  const valid = await findValidKeys(db, keys, 'any', now);
  for (const { owner, ending } of admitted)
    if (owner.key_id !== undefined && keys.has(owner.key_id) && !valid.has(owner.key_id)) ending.abort();
}

/** Creates the live feeds of a process (reference/events.md#live-feeds). */
export function createLiveFeeds({ db, tails, clock, log, metrics }: LiveDeps) {
  const connections = createShares({
    capacity: max_live_connections,
    max_per_account: max_live_connections_per_account,
  });
  const admitted = new Set<Admitted>();
  let keyCheck: NodeJS.Timeout | undefined;
  let isStopped = false;
  const endUnentitled = coalesce(() => endRevoked(db, admitted, clock() / 1000));
  const checkKeys = () =>
    void endUnentitled().catch((error: unknown) =>
      log.debug?.({ err: error }, 'keys of live feeds could not be checked'),
    );

  function reportCount(kind: FeedKind): void {
    metrics.connections(kind, [...admitted].filter((connection) => connection.kind === kind).length);
  }

  return {
    /** @throws AppError overloaded (5033) beyond the limit of the account or of the process */
    admit(kind: FeedKind, owner: FeedOwner) {
      if (isStopped) throw new AppError('overloaded');
      const giveBack = connections.take(owner.account);
      const connection: Admitted = { kind, owner, ending: new AbortController() };
      admitted.add(connection);
      keyCheck ??= setInterval(checkKeys, key_check_ms);
      reportCount(kind);
      return {
        /** Aborts when the feed has to end: by `end`, as the key or token is revoked or has expired, or as the service stops. */
        ended: connection.ending.signal,
        end: () => connection.ending.abort(),
        release(): void {
          if (!admitted.delete(connection)) return;
          giveBack();
          reportCount(kind);
          if (admitted.size > 0) return;
          clearInterval(keyCheck);
          keyCheck = undefined;
        },
      };
    },
    overflowed: metrics.overflowed,
    /** Ends all feeds, admits no more, and stops reading for them. */
    async close(): Promise<void> {
      isStopped = true;
      for (const { ending } of admitted) ending.abort();
      await Promise.all(tails.map((tail) => tail.close()));
    },
  };
}
