import { Resolver } from 'node:dns/promises';
import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { LRUCache } from 'lru-cache';
import { createShares } from '../lib/shares.js';

export interface Address {
  address: string;
  family: number;
}

/** Resolves a name to all its addresses, those of IPv4 first. @throws Error, also when the account has too many look-ups */
export type Resolve = (account: string, name: string, signal: AbortSignal) => Promise<readonly Address[]>;

interface ResolverOptions {
  /** Name servers, such as `127.0.0.1:5353`; by default those of `/etc/resolv.conf`. */
  servers?: readonly string[];
  hosts_file?: string;
  configuration_file?: string;
  /** A failure is the answer for this time; default: a minute. */
  failure_kept_ms?: number;
}

const max_lookups = 64;
const max_waiting = 1000;
const lookup_limit_ms = 4000;
const try_timeout_ms = 1500;
const max_failures = 10_000;

/**
 * Creates the look-up of names that accounts choose. It asks name servers itself: the system's resolver occupies a thread
 * until it gives up, and a few names without an answer stop every look-up of the process. An account has one look-up at a
 * time, and a failure is the answer for a while. Like the system's resolver it reads `/etc/hosts`, and the search domains
 * of `/etc/resolv.conf`.
 */
export function createResolver({
  servers,
  hosts_file = '/etc/hosts',
  configuration_file = '/etc/resolv.conf',
  failure_kept_ms = 60_000,
}: ResolverOptions = {}): Resolve {
  const lookups = createShares({ capacity: max_lookups, max_per_account: 1, max_waiting });
  const failures = new LRUCache<string, Error>({ max: max_failures, ttl: failure_kept_ms });

  function throwKnownFailure(name: string): void {
    const failure = failures.get(name);
    if (failure !== undefined) throw failure;
  }

  async function lookUp(name: string, signal: AbortSignal | undefined): Promise<readonly Address[]> {
    const resolver = new Resolver({ timeout: try_timeout_ms, tries: 2 });
    if (servers !== undefined) resolver.setServers(servers);
    const cancel = () => resolver.cancel();
    signal?.addEventListener('abort', cancel, { once: true });
    try {
      let failure: unknown;
      for (const candidate of await listCandidates(name, configuration_file)) {
        signal?.throwIfAborted();
        try {
          return await askForAddresses(resolver, candidate);
        } catch (error) {
          failure = error;
        }
      }
      throw failure;
    } finally {
      signal?.removeEventListener('abort', cancel);
    }
  }

  return async (account, name, signal) => {
    const local = await findInHostsFile(hosts_file, name);
    if (local.length > 0) return local;
    throwKnownFailure(name);
    const look = async (limit: AbortSignal | undefined) => {
      // while this one waited in line, another may have failed
      throwKnownFailure(name);
      try {
        return await lookUp(name, limit);
      } catch (error) {
        if (!signal.aborted) failures.set(name, error as Error);
        throw error;
      }
    };
    return lookups.run(account, look, { limit_ms: lookup_limit_ms, signal });
  };
}

async function askForAddresses(resolver: Resolver, name: string): Promise<readonly Address[]> {
  const [v4, v6] = await Promise.allSettled([resolver.resolve4(name), resolver.resolve6(name)]);
  const addresses = [v4, v6].flatMap((result) => (result.status === 'fulfilled' ? result.value : []));
  if (addresses.length === 0) throw (v4 as PromiseRejectedResult).reason;
  return addresses.map((address) => ({ address, family: isIP(address) }));
}

/** Finds the addresses of a name in a hosts file; `localhost` is always this machine. */
async function findInHostsFile(file: string, name: string): Promise<readonly Address[]> {
  const wanted = name.toLowerCase().replace(/\.$/, '');
  const addresses = (await readLines(file))
    .filter(([, ...names]) => names.some((listed) => listed.toLowerCase() === wanted))
    .map(([address = '']) => ({ address, family: isIP(address) }))
    .filter(({ family }) => family !== 0)
    .sort((a, b) => a.family - b.family);
  if (addresses.length > 0 || !/(^|\.)localhost$/.test(wanted)) return addresses;
  return [
    { address: '127.0.0.1', family: 4 },
    { address: '::1', family: 6 },
  ];
}

/** Lists the complete names that a name may stand for, by `search` and `ndots` of resolv.conf(5), in the order to try. */
async function listCandidates(name: string, file: string): Promise<readonly string[]> {
  if (name.endsWith('.')) return [name.slice(0, -1)];
  const lines = await readLines(file);
  const search = lines.findLast(([keyword]) => keyword === 'search' || keyword === 'domain')?.slice(1) ?? [];
  const options = lines.filter(([keyword]) => keyword === 'options').flat();
  const ndots = Number(options.findLast((option) => option.startsWith('ndots:'))?.slice('ndots:'.length) ?? 1);
  const searched = search.filter((domain) => domain !== '.').map((domain) => `${name}.${domain.replace(/\.$/, '')}`);
  const dots = name.split('.').length - 1;
  return dots >= ndots ? [name, ...searched] : [...searched, name];
}

/** Reads the words of each line; none if the file cannot be read. */
async function readLines(file: string): Promise<string[][]> {
  const text = await readFile(file, 'utf8').catch(() => '');
  return text.split('\n').map((line) =>
    line
      .replace(/[#;].*/, '')
      .trim()
      .split(/\s+/),
  );
}
