import { expect, it } from '@jest/globals';
import { createAddressFilter } from '../../src/file-storage/addresses.js';
import { openNetwork } from '../../src/file-storage/egress.js';
import { StorageFault } from '../../src/file-storage/limits.js';
import { listFiles } from '../../src/file-storage/listing.js';
import type { StoredFile } from '../../src/file-storage/provider.js';
import { openVault } from '../../src/file-storage/vault.js';
import { startHostile } from '../support/storage/hostile.js';

const signal = AbortSignal.timeout(60_000);

it('distinguishes public addresses from all others', () => {
  const isAllowed = createAddressFilter([]);
  for (const address of ['8.8.8.8', '1.1.1.1', '2606:4700::1111', '::ffff:8.8.8.8'])
    expect([address, isAllowed(address)]).toEqual([address, true]);
  const privateAddresses = [
    '127.0.0.1',
    '10.1.2.3',
    '::1',
    '::',
    'fc00::1',
    '4000::1',
    '::ffff:10.0.0.1',
    '2002:808:808::',
    '64:ff9b::808:808',
    'name',
    '',
  ];
  for (const address of privateAddresses) expect([address, isAllowed(address)]).toEqual([address, false]);
});

it('allows the listed networks, but never link-local and metadata addresses', () => {
  const isAllowed = createAddressFilter(['10.0.0.0/8', 'fd00::/8', '127.0.0.1/32']);
  for (const address of ['10.1.2.3', '::ffff:10.1.2.3', 'fd12::1', '127.0.0.1']) expect(isAllowed(address)).toBe(true);
  for (const address of ['127.0.0.2', '192.168.0.1', '::1', 'fd00:ec2::254']) expect(isAllowed(address)).toBe(false);
  const isAllowedByAll = createAddressFilter(['0.0.0.0/0', '::/0']);
  for (const address of ['127.0.0.1', '::1', '192.168.0.1']) expect(isAllowedByAll(address)).toBe(true);
  const blocked = [
    '169.254.169.254',
    '::ffff:169.254.169.254',
    '64:ff9b::a9fe:a9fe',
    '2002:a9fe:a9fe::1',
    'fe80::1',
    '100.100.100.200',
    'fd00:ec2::254',
  ];
  for (const address of blocked) expect([address, isAllowedByAll(address)]).toEqual([address, false]);
});

it('resolves a name once, and connects to the checked address', async () => {
  const server = await startHostile({ kind: 'answer', status: 200, body: 'here' });
  const lookups: string[] = [];
  /** A resolver that returns the next of `addresses` at each look-up. */
  const rebinding = (addresses: string[][]) => async (name: string) => {
    lookups.push(name);
    const now = addresses.length > 1 ? addresses.shift() : addresses[0];
    return (now ?? []).map((address) => ({ address, family: 4 }));
  };
  const url = new URL(`http://storage.test:${server.port}/`);
  const allow_nets = ['127.0.0.1/32'];
  try {
    const steady = openNetwork({ allow_nets, resolve: rebinding([['127.0.0.1']]) });
    const answer = await steady.send(url, { method: 'GET', signal });
    answer.destroy();
    expect([answer.statusCode, lookups, server.connections()]).toEqual([200, ['storage.test'], 1]);
    // a second look-up would find the other address
    const turning = openNetwork({ allow_nets, resolve: rebinding([['127.0.0.2'], ['127.0.0.1']]) });
    await expect(turning.send(url, { method: 'GET', signal })).rejects.toThrow(StorageFault);
    for (const addresses of [['127.0.0.1', '127.0.0.2'], ['127.0.0.2', '127.0.0.1'], ['10.0.0.1'], []]) {
      const mixed = openNetwork({ allow_nets, resolve: rebinding([addresses]) });
      await expect(mixed.send(url, { method: 'GET', signal })).rejects.toThrow(StorageFault);
    }
    expect(server.connections()).toBe(1);
  } finally {
    await server.stop();
  }
});

it('opens sealed values with the same key and associated data only', async () => {
  const [vault, other] = [openVault('one key of many'), openVault('another key of many')];
  const sealed = await vault.seal({ password: 'canary' }, 'here');
  expect(await vault.open(sealed, 'here')).toEqual({ password: 'canary' });
  expect(sealed.toString('latin1')).not.toContain('canary');
  expect(await vault.seal({ password: 'canary' }, 'here')).not.toEqual(sealed);
  expect(await vault.open(sealed, 'there')).toBeUndefined();
  expect(await other.open(sealed, 'here')).toBeUndefined();
  for (let at = 0; at < sealed.length; at++) {
    const changed = Buffer.from(sealed);
    changed[at] = (changed[at] ?? 0) ^ 1;
    expect(await vault.open(changed, 'here')).toBeUndefined();
  }
  for (const length of [0, 1, 12, 27, 28, sealed.length - 1])
    expect(await vault.open(sealed.subarray(0, length), 'here')).toBeUndefined();
  expect([await vault.keyId(), (await vault.keyId()) === (await other.keyId())]).toEqual([await vault.keyId(), false]);
});

it('shuffles fairly', async () => {
  const files: StoredFile[] = ['a', 'b', 'c'].map((path) => ({ path, size: 1, modified_at: 1 }));
  const storage = {
    async check() {},
    async *files() {
      yield [...files];
    },
  };
  const counts = new Map<string, number>();
  for (let round = 0; round < 6000; round++) {
    const listed = await listFiles(storage, { op: 'random', name: undefined }, { signal, bytes: 0 });
    const order = listed.map(({ path }) => path).join('');
    counts.set(order, (counts.get(order) ?? 0) + 1);
  }
  // six orders, each 1000 times but for 10 standard deviations
  expect(counts.size).toBe(6);
  for (const count of counts.values()) expect(Math.abs(count - 1000)).toBeLessThan(290);
});
