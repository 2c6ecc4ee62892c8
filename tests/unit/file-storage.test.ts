import { describe, expect, it } from '@jest/globals';
import { createAddressFilter } from '../../src/egress/addresses.js';
import { openStorageNetwork } from '../../src/file-storage/egress.js';
import { StorageFault } from '../../src/file-storage/limits.js';
import { listFiles } from '../../src/file-storage/listing.js';
import type { StoredFile } from '../../src/file-storage/providers/provider.js';
import { readXml, type XmlVisitor } from '../../src/file-storage/providers/xml.js';
import { openVault } from '../../src/lib/vault.js';
import { startHostile } from '../support/storage/hostile.js';
import { wordsOf } from '../support/words.js';

const signal = AbortSignal.timeout(60_000);

it('distinguishes public addresses from all others', () => {
  const isAllowed = createAddressFilter([]);
  for (const address of ['8.8.8.8', '1.1.1.1', '2606:4700::1111', '::ffff:8.8.8.8'])
    expect([address, isAllowed(address)]).toEqual([address, true]);
  const privateAddresses = [
    ...wordsOf('127.0.0.1 10.1.2.3 ::1 :: fc00::1 4000::1 ::ffff:10.0.0.1 2002:808:808:: 64:ff9b::808:808 name'),
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
  const rebinding = (addresses: string[][]) => async (_account: string, name: string) => {
    lookups.push(name);
    const now = addresses.length > 1 ? addresses.shift() : addresses[0];
    return (now ?? []).map((address) => ({ address, family: 4 }));
  };
  const url = new URL(`http://storage.test:${server.port}/`);
  const allow_nets = ['127.0.0.1/32'];
  try {
    const steady = openStorageNetwork({ allow_nets, resolve: rebinding([['127.0.0.1']]) });
    const answer = await steady.send(url, { account: 'acme', method: 'GET', signal });
    answer.destroy();
    expect([answer.statusCode, lookups, server.connections()]).toEqual([200, ['storage.test'], 1]);
    // a second look-up would find the other address
    const turning = openStorageNetwork({ allow_nets, resolve: rebinding([['127.0.0.2'], ['127.0.0.1']]) });
    await expect(turning.send(url, { account: 'acme', method: 'GET', signal })).rejects.toThrow(StorageFault);
    for (const addresses of [['127.0.0.1', '127.0.0.2'], ['127.0.0.2', '127.0.0.1'], ['10.0.0.1'], []]) {
      const mixed = openStorageNetwork({ allow_nets, resolve: rebinding([addresses]) });
      await expect(mixed.send(url, { account: 'acme', method: 'GET', signal })).rejects.toThrow(StorageFault);
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

describe('XML of a provider', () => {
  /** Parses a document in chunks as they come from a socket. @returns its closed elements and the milliseconds it took */
  async function parse(document: string, visitor: Partial<XmlVisitor> = {}) {
    const closed: [name: string, text: string][] = [];
    async function* chunks() {
      const bytes = Buffer.from(document);
      for (let at = 0; at < bytes.length; at += 65_536) yield bytes.subarray(at, at + 65_536);
    }
    const begun = process.cpuUsage();
    const outcome = await readXml(chunks(), 'root', {
      onClose: (name, text) => void closed.push([name, text]),
      ...visitor,
    }).then(
      () => 'read',
      (error: unknown) => (error instanceof StorageFault ? 'refused' : error),
    );
    return { outcome, closed, cpu_s: process.cpuUsage(begun).user / 1e6 };
  }
  const nested = (depth: number, name = 'a') =>
    `<root>${`<${name}>`.repeat(depth - 1)}${`</${name}>`.repeat(depth - 1)}</root>`;
  const attributes = (count: number, name = 'b') =>
    `<root ${Array.from({ length: count }, (_, index) => `${name}${index}=""`).join(' ')}/>`;

  it('is read by local names, with the text of each element', async () => {
    const { outcome, closed } = await parse(
      '<?xml version="1.0"?><D:root xmlns:D="DAV:" xmlns="x">a<D:b c="1">&lt;b&gt;</D:b><!-- no --><c><![CDATA[<&>]]></c>d<e/></D:root>',
    );
    expect(outcome).toBe('read');
    expect(closed).toEqual([
      ['b', '<b>'],
      ['c', '<&>'],
      ['e', ''],
      ['root', 'ad'],
    ]);
  });

  it.each<[string, string, string]>([
    ['32 levels', nested(32), nested(33)],
    ['32 attributes of an element', attributes(32), attributes(33)],
    ['32 namespaces of an element', attributes(32, 'xmlns:b'), attributes(33, 'xmlns:b')],
    ['names of 256 characters', nested(2, 'a'.repeat(256)), nested(2, 'a'.repeat(257))],
    ['attribute names of 256 characters', attributes(1, 'b'.repeat(255)), attributes(1, 'b'.repeat(256))],
    ['64 KiB of text', `<root>${'t'.repeat(65_536)}</root>`, `<root>${'t'.repeat(65_537)}</root>`],
    [
      '64 KiB of text in parts',
      `<root>${`${'t'.repeat(64)}<a/>`.repeat(1024)}</root>`,
      `<root>${`${'t'.repeat(64)}<a/>`.repeat(1025)}</root>`,
    ],
  ])('may have %s and no more', async (_limit, accepted, refused) => {
    expect((await parse(accepted)).outcome).toBe('read');
    expect((await parse(refused)).outcome).toBe('refused');
  });

  it.each<[string, string]>([
    ['a comment', '<root><!--'],
    ['a CDATA section', '<root><![CDATA['],
    ['a processing instruction', '<root><?php '],
    ['a name', '<root><'],
    ['an attribute name', '<root '],
    ['an attribute value', '<root a="'],
    ['a text', '<root>'],
    ['space in a tag', '<root  '],
  ])('may not have %s without end', async (_part, start) => {
    let read = 0;
    const filler = start.endsWith('  ') ? ' ' : 'x';
    async function* endless() {
      yield Buffer.from(start);
      for (read = 0; read < 100; read += 1) yield Buffer.from(filler.repeat(65_536));
    }
    await expect(readXml(endless(), 'root', { onClose() {} })).rejects.toThrow(StorageFault);
    expect(read).toBeLessThan(5);
  });

  it('costs no more than its length, whatever is in it', async () => {
    const size = 4 * 1024 * 1024;
    const fill = (part: string) => part.repeat(Math.ceil(size / part.length));
    // 60 KB of this took 11 s with namespaces, as each name was looked up in all open elements
    const deep = await parse(`<root>${'<a>'.repeat(size / 3)}`);
    expect(deep.outcome).toBe('refused');
    const wide = await parse(`<root>${fill('<b:c xmlns:b="x" b:d="y">text</b:c>')}</root>`);
    expect(wide.outcome).toBe('read');
    const narrow = await parse(`<root>${fill(`${'<a>'.repeat(31)}${'</a>'.repeat(31)}`)}</root>`);
    expect(narrow.outcome).toBe('read');
    // 0.2 s each; by the square of the length it would be hours
    for (const { cpu_s } of [deep, wide, narrow]) expect(cpu_s).toBeLessThan(10);
  });
});

describe('long listings', () => {
  const storageOf = (files: readonly StoredFile[]) => ({
    async check() {},
    async *files() {
      for (let from = 0; from < files.length; from += 1000) yield files.slice(from, from + 1000);
    },
  });
  /** Files in an order that is sorted by nothing. */
  const scattered = (count: number): StoredFile[] =>
    Array.from({ length: count }, (_, index) => {
      const number = (index * 7_919) % count;
      return { path: `folder/${String(number).padStart(6, '0')}`, size: number, modified_at: number % 1_000 };
    });
  const limits = { signal, bytes: 0 };

  it('are sorted in slices, between which the event loop turns', async () => {
    const storage = storageOf(scattered(100_000));
    for (const op of ['all', 'newest', 'oldest', 'random'] as const) {
      let turns = 0;
      let isDone = false;
      const turn = () => {
        turns += 1;
        if (!isDone) setImmediate(turn);
      };
      setImmediate(turn);
      const listed = await listFiles(storage, { op, name: undefined }, limits);
      isDone = true;
      // 100,000 files in slices of 2,000; one sort in a piece has one turn
      expect(turns).toBeGreaterThanOrEqual(45);
      expect(new Set(listed.map(({ path }) => path)).size).toBe(100_000);
      const key = ({ path, modified_at }: StoredFile) =>
        op === 'all' ? path : `${String(op === 'newest' ? 999 - modified_at : modified_at).padStart(3, '0')} ${path}`;
      const keys = listed.map(key);
      if (op !== 'random') expect(keys).toEqual(keys.toSorted());
    }
  });

  it('keep the order of small lists too', async () => {
    for (const count of [0, 1, 2, 1_999, 2_000, 2_001, 4_001]) {
      const listed = await listFiles(storageOf(scattered(count)), { op: 'all', name: undefined }, limits);
      expect(listed.map(({ path }) => path)).toEqual(
        scattered(count)
          .map(({ path }) => path)
          .sort(),
      );
    }
  });

  it('end at 100,000 files, and when nobody waits for them', async () => {
    const list = (count: number, given: AbortSignal) =>
      listFiles(storageOf(scattered(count)), { op: 'all', name: undefined }, { signal: given, bytes: 0 });
    await expect(list(100_000, signal)).resolves.toHaveLength(100_000);
    await expect(list(100_001, signal)).rejects.toThrow('holds more than 100000 files');
    await expect(list(10, AbortSignal.abort())).rejects.toThrow(StorageFault);
  });
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
