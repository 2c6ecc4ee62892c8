import { createHmac, randomBytes, scrypt, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';
import { LRUCache } from 'lru-cache';
import { createShares } from '../../lib/shares.js';

const deriveKey = promisify<string, Buffer, number, { N: number; r: number; p: number }, Buffer>(scrypt);

/** 4 MiB and about 7 ms per hash: affordable when thousands of devices reconnect at once. */
const scryptCost = { N: 4096, r: 8, p: 1 };
const hash_bytes = 32;

/** Hashes a password for storage: `scrypt$N$r$p$salt$hash`, base64url. */
export async function hashPassword(password: string): Promise<string> {
  const salt = randomBytes(16);
  const hash = await deriveKey(password, salt, hash_bytes, scryptCost);
  const { N, r, p } = scryptCost;
  return ['scrypt', N, r, p, salt.toString('base64url'), hash.toString('base64url')].join('$');
}

async function matchesHash(password: string, storedHash: string): Promise<boolean> {
  const [, N, r, p, salt = '', hash = ''] = storedHash.split('$');
  const expected = Buffer.from(hash, 'base64url');
  const actual = await deriveKey(password, Buffer.from(salt, 'base64url'), expected.length, {
    N: Number(N),
    r: Number(r),
    p: Number(p),
  });
  return timingSafeEqual(actual, expected);
}

/** A password to check. */
export interface PasswordAttempt {
  username: string;
  password: string;
  /** Undefined for an unknown username: the check takes as long and fails. */
  storedHash: string | undefined;
}

export type Verify = (attempt: PasswordAttempt) => Promise<boolean>;

const verified_ttl_ms = 10 * 60_000;
const max_verified = 20_000;
const refused_ttl_ms = 5000;
const max_refused = 20_000;
const max_concurrent_hashes = 2;

/**
 * Creates the password check of a process. At most two hashes are derived at once, so that a login storm leaves CPU time
 * for everything else. Results are cached by digest: a reconnecting device costs no hash, nor does a repeated wrong login.
 */
export async function createPasswordVerifier(clock: () => number): Promise<Verify> {
  const dummyHash = await hashPassword(randomBytes(16).toString('hex'));
  const pepper = randomBytes(32);
  const options = { ttlResolution: 0, perf: { now: clock } };
  const verified = new LRUCache<string, true>({ ...options, max: max_verified, ttl: verified_ttl_ms });
  const refused = new LRUCache<string, true>({ ...options, max: max_refused, ttl: refused_ttl_ms });
  // the account is not known yet
  const hashing = createShares({
    capacity: max_concurrent_hashes,
    max_per_account: max_concurrent_hashes,
    max_waiting: Number.POSITIVE_INFINITY,
  });

  return async ({ username, password, storedHash = dummyHash }) => {
    // unknown usernames share the dummy hash: a cached refusal of one must not make others answer faster
    const subject = storedHash === dummyHash ? `${dummyHash} ${username}` : storedHash;
    const digest = createHmac('sha256', pepper).update(`${subject}\0${password}`).digest('base64');
    const cached = () => (verified.has(digest) ? true : refused.has(digest) ? false : undefined);
    return (
      cached() ??
      hashing.run('', async () => {
        // an identical attempt may have been checked while this one waited
        const result = cached();
        if (result !== undefined) return result;
        const isVerified = (await matchesHash(password, storedHash)) && storedHash !== dummyHash;
        (isVerified ? verified : refused).set(digest, true);
        return isVerified;
      })
    );
  };
}
