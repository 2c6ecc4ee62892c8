import { createSocket } from 'node:dgram';
import { once, setMaxListeners } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from '@jest/globals';
import { openNetwork } from '../../src/egress/network.js';
import { createResolver } from '../../src/egress/resolver.js';

const cleanups: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0)) await cleanup();
});

describe('a request out of the service ends', () => {
  /** Starts a server that writes `head` to each connection, and does `then`. */
  async function serve(head: string, then: (socket: Socket) => void) {
    const server = createServer((socket) => {
      socket
        .on('error', () => undefined)
        .once('data', () => {
          socket.write(head.replaceAll('\n', '\r\n'));
          then(socket);
        });
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    cleanups.push(async () => server.close());
    return new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
  }
  const network = openNetwork({ allow_nets: ['127.0.0.0/8'], variable: 'ALLOWED' });
  const wait = () => undefined;

  it.each<[string, head: string, then: (socket: Socket) => void, message: string]>([
    ['101', 'HTTP/1.1 101 Switching Protocols\nConnection: Upgrade\nUpgrade: x\n\n', wait, 'answered with status 101'],
    ['a closed connection', '', (socket) => socket.end(), 'closed the connection without an answer'],
    ['a reset', '', (socket) => socket.resetAndDestroy(), 'closed the connection without an answer'],
    ['something else', '220 mail.example ESMTP\n', wait, 'did not answer in valid HTTP'],
    ['a malformed header', 'HTTP/1.1 200 OK\nContent-Length: x\n\n', wait, 'did not answer in valid HTTP'],
    ['too many headers', `HTTP/1.1 200 OK\nx: ${'y'.repeat(20_000)}\n\n`, wait, 'answered with too many headers'],
    ['half a header', 'HTTP/1.1 200 OK\nContent-', wait, 'did not answer in time'],
    ['silence', '', wait, 'did not answer in time'],
  ])('when the server answers with %s', async (_name, head, then, message) => {
    const url = await serve(head, then);
    const signal = AbortSignal.timeout(message === 'did not answer in time' ? 300 : 60_000);
    await expect(network.send(url, { account: 'acme', method: 'POST', body: '{}', signal })).rejects.toThrow(message);
  });

  it.each(['Content-Length: 10000', 'Connection: close'])('when its body trickles, with %s', async (header) => {
    const url = await serve(`HTTP/1.1 200 OK\n${header}\n\n`, (socket) => {
      const timer = setInterval(() => socket.write('x'), 20);
      socket.on('close', () => clearInterval(timer));
    });
    const signal = AbortSignal.timeout(500);
    const response = await network.send(url, { account: 'acme', method: 'GET', signal });
    await expect(response.toArray()).rejects.toThrow('timeout');
  });
});

describe('a name', () => {
  /** Starts a name server that answers the names it knows with 192.0.2.1, refuses those with `.invalid`, and ignores all others. */
  async function startNameServer(...known: string[]) {
    const asked: string[] = [];
    const socket = createSocket('udp4', (message, { port }) => {
      const end = message.indexOf(0, 12);
      const labels: string[] = [];
      for (let at = 12; at < end; at += 1 + (message[at] ?? 0))
        labels.push(message.toString('latin1', at + 1, at + 1 + (message[at] ?? 0)));
      const name = labels.join('.');
      const type = message.readUInt16BE(end + 1);
      if (type === 1) asked.push(name);
      const question = message.subarray(12, end + 5);
      const isKnown = known.includes(name);
      if (!isKnown && !name.includes('.invalid')) return;
      const hasAddress = isKnown && type === 1;
      const header = Buffer.from(message.subarray(0, 12));
      header.writeUInt16BE(isKnown ? 0x8180 : 0x8183, 2);
      header.writeUInt16BE(hasAddress ? 1 : 0, 6);
      header.fill(0, 8);
      const record = Buffer.from('c00c00010001000000000004c0000201', 'hex');
      socket.send(Buffer.concat([header, question, ...(hasAddress ? [record] : [])]), port, '127.0.0.1');
    });
    socket.bind(0, '127.0.0.1');
    await once(socket, 'listening');
    const folder = await mkdtemp(join(tmpdir(), 'names-'));
    cleanups.push(
      async () => socket.close(),
      () => rm(folder, { recursive: true }),
    );
    const [hosts_file, configuration_file] = [join(folder, 'hosts'), join(folder, 'resolv.conf')];
    await writeFile(hosts_file, '# comment\n192.0.2.7 storage storage.lan # here\n::1 storage\n');
    await writeFile(configuration_file, 'search cluster.test other.test\noptions ndots:2 timeout:1\n');
    const resolve = createResolver({ servers: [`127.0.0.1:${socket.address().port}`], hosts_file, configuration_file });
    return { asked, resolve };
  }
  const { signal } = new AbortController();
  const address = [{ address: '192.0.2.1', family: 4 }];

  it('is looked up in the hosts file, and with the search domains', async () => {
    const { asked, resolve } = await startNameServer('files.example.test', 'minio.cluster.test');
    expect(await resolve('acme', 'STORAGE', signal)).toEqual([
      { address: '192.0.2.7', family: 4 },
      { address: '::1', family: 6 },
    ]);
    expect(await resolve('acme', 'localhost', signal)).toContainEqual({ address: '127.0.0.1', family: 4 });
    expect(asked).toEqual([]);
    expect(await resolve('acme', 'files.example.test', signal)).toEqual(address);
    expect(await resolve('acme', 'minio', signal)).toEqual(address);
    expect(asked).toEqual(['files.example.test', 'minio.cluster.test']);
  });

  it('that is not found is not asked for again within a minute', async () => {
    const { asked, resolve } = await startNameServer();
    for (const account of ['acme', 'other'])
      await expect(resolve(account, 'a.b.invalid', signal)).rejects.toMatchObject({ code: 'ENOTFOUND' });
    expect(asked.filter((name) => name === 'a.b.invalid')).toHaveLength(1);
  });

  it('that nobody answers keeps no other account waiting, and no thread', async () => {
    const { asked, resolve } = await startNameServer('files.example.test');
    const leaving = new AbortController();
    setMaxListeners(50, leaving.signal);
    const hanging = Array.from({ length: 50 }, (_, i) => resolve('acme', `n${i}.nobody.test`, leaving.signal));
    const settled = Promise.allSettled(hanging);
    expect(await resolve('other', 'files.example.test', signal)).toEqual(address);
    // which of them comes first depends on the file system
    const [unanswered, ...others] = [...new Set(asked)].filter((name) => name !== 'files.example.test');
    expect([unanswered, others]).toEqual([expect.stringMatching(/^n\d+\.nobody\.test$/), []]);
    leaving.abort();
    for (const { status } of await settled) expect(status).toBe('rejected');
  });
});
