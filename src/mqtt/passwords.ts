import { createHash, randomBytes, scrypt, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';

const derive = promisify<string, Buffer, number, { N: number; r: number; p: number }, Buffer>(scrypt);

/** 4 MiB and some 7 ms a hash: what thousands of devices that come back at once can still pay. */
const cost = { N: 4096, r: 8, p: 1 };
const length = 32;

/** The hash as it is stored: `scrypt$N$r$p$salt$hash`, base64url. */
export async function hashPassword(password: string): Promise<string> {
  const salt = randomBytes(16);
  const hash = await derive(password, salt, length, cost);
  return ['scrypt', cost.N, cost.r, cost.p, salt.toString('base64url'), hash.toString('base64url')].join('$');
}

async function matches(password: string, stored: string): Promise<boolean> {
  const [, N, r, p, salt = '', hash = ''] = stored.split('$');
  const expected = Buffer.from(hash, 'base64url');
  const given = await derive(password, Buffer.from(salt, 'base64url'), expected.length, {
    N: Number(N),
    r: Number(r),
    p: Number(p),
  });
  return timingSafeEqual(given, expected);
}

/** Checks a password against a stored hash; without one it takes as long and fails. */
export type Verify = (password: string, stored: string | undefined) => Promise<boolean>;

const remembered_ms = 10 * 60_000;
const remembered_most = 20_000;
const parallel = 2;

/**
 * At most two hashes are derived at once, the others wait their turn: a storm of logins leaves the rest of the service
 * its time. What was verified in the last minutes is known by a digest and costs nothing when a device comes back.
 */
export async function passwordVerifier(clock: () => number): Promise<Verify> {
  const nobody = await hashPassword(randomBytes(16).toString('hex'));
  const pepper = randomBytes(32);
  const verified = new Map<string, number>();
  const waiting: (() => void)[] = [];
  let under_way = 0;

  async function inTurn<T>(work: () => Promise<T>): Promise<T> {
    if (under_way >= parallel) await new Promise<void>((resolve) => waiting.push(resolve));
    else under_way++;
    try {
      return await work();
    } finally {
      const next = waiting.shift();
      if (next === undefined) under_way--;
      else next();
    }
  }

  return async (password, stored = nobody) => {
    const digest = createHash('sha256').update(pepper).update(stored).update(password).digest('base64');
    const until = verified.get(digest);
    if (until !== undefined && until > clock()) return true;
    if (!(await inTurn(() => matches(password, stored)))) return false;
    verified.set(digest, clock() + remembered_ms);
    if (verified.size > remembered_most) verified.delete(verified.keys().next().value ?? '');
    return stored !== nobody;
  };
}
