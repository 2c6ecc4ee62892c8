import { setTimeout as sleep } from 'node:timers/promises';
import { openConnection, openConnections, type RawConnection, sendRequest } from '../support/instance.js';
import { insertLargeStreams, largeStreamsPath } from './copies.js';
import { type Attack, assert, device, formatRequest, measureSlowest, type Target } from './target.js';

const mib = 1024 * 1024;

/** Attacks on the memory of a process with a heap of 512 MiB. */
export const memoryAttacks: readonly Attack[] = [
  { name: 'memory: six bodies of 15 MiB at once', run: exceedBodyBudget },
  {
    name: 'memory: 12 parallel bodies of 1 MiB with 21,800 small objects each, with a stream key',
    run: sendSmallObjects,
  },
  { name: 'memory: the same bodies with a write key, as properties', run: sendManyProperties },
  { name: 'memory: eight pages of 1,000 large streams with _m=1, read slowly', run: readPagesSlowly },
];

/** Bodies that lack their last byte hold more than the share of an account; the rest of the budget serves others. */
async function exceedBodyBudget(target: Target): Promise<void> {
  const body = Buffer.alloc(15 * mib, ' ');
  const path = `/devices/${device}/deviceconfigs/`;
  const head =
    `POST ${path} HTTP/1.1\r\nHost: x\r\nservice.apikey: ${target.key}\r\n` +
    `Content-Length: ${body.length + 1}\r\n\r\n`;
  const slow = await openConnections(target.port, 6);
  for (const { socket } of slow) {
    socket.write(head);
    socket.write(body);
  }
  const isRefused = ({ statuses }: RawConnection) => statuses().includes(503);
  for (let waited_ms = 0; waited_ms < 20_000 && slow.filter(isRefused).length < 4; waited_ms += 100) await sleep(100);
  const refused = slow.filter(isRefused).length;
  const description = 'x'.repeat(200);
  const other = await target.send('POST', '/models/', { name: 'in between', description }, target.bystanderKey);
  for (const { socket } of slow) socket.destroy();
  await sleep(500);
  const own = await target.send('POST', '/models/', { name: 'after the bodies' });
  assert(refused >= 4, `only ${refused} of 6 bodies were refused with 503`);
  assert(other.status === 200, `a body of another account gets ${other.status} / ${other.code} meanwhile`);
  assert(own.status === 200, `the account itself gets ${own.status} / ${own.code} afterwards`);
}

/** Bodies full of small objects, which take many times their size in memory; those with over 50,000 values may be refused. */
async function sendSmallObjects(target: Target): Promise<void> {
  const stream = (object: string, count: number) =>
    `{"device":"${device}","data":{"k":[${`${object},`.repeat(count).slice(0, -1)}]}}`;
  const arrayOf = (entry: string, count: number) => `[${`${entry},`.repeat(count).slice(0, -1)}]`;
  const bodies = [
    arrayOf(stream('{"a":1,"b":2,"c":{"d":3},"e":[4,5,6],"f":true}', 21), 1000),
    arrayOf(stream('{"a":1}', 120), 1000),
    arrayOf(stream('{}', 1), 21_800),
  ];
  await flood(target, '/streams/', bodies, target.streamKey);
}

async function sendManyProperties(target: Target): Promise<void> {
  const properties = `{${Array.from({ length: 100 }, (_, n) => `"k${n}":[${'{"a":1},'.repeat(218)}{}]`).join()}}`;
  await flood(target, '/models/', [`{"name":"many values","properties":${properties}}`], target.key);
}

/** Sends each body 12 times at once, three times. */
async function flood(target: Target, path: string, bodies: readonly string[], key: string): Promise<void> {
  const { url } = target;
  const unexpected = new Map<string, number>();
  const sendOnce = async (body: string) => {
    const answer = await sendRequest({ url, method: 'POST', path, body, key }).then(
      ({ status, code }) => (status < 500 || code === 5033 ? undefined : `${status} / ${code}`),
      (error: unknown) => String(error),
    );
    if (answer !== undefined) unexpected.set(answer, (unexpected.get(answer) ?? 0) + 1);
  };
  const slowest_ms = await measureSlowest(target, async () => {
    for (const body of bodies) {
      assert(body.length <= mib, `a body of ${body.length} bytes is too large for this attack`);
      for (let round = 0; round < 3; round++) await Promise.all(Array.from({ length: 12 }, () => sendOnce(body)));
    }
  });
  const [first] = unexpected;
  assert(first === undefined, `${first?.[1]} requests got ${first?.[0]}`);
  assert(slowest_ms < 3 * target.calm_limit_ms, `another account waited ${slowest_ms} ms`);
}

/** Inserts 1,000 streams of 60 KB and requests their page from clients that read 64 KiB every 50 ms. */
async function readPagesSlowly(target: Target): Promise<void> {
  await insertLargeStreams(target, 1000);
  const headers = ['', 'Accept: application/xml\r\n'];
  const clients = await openConnections(target.port, 8);
  const work = clients.map(async ({ socket }, n) => {
    socket.removeAllListeners('data');
    socket.pause();
    socket.write(formatRequest(target, `${largeStreamsPath}&_m=1&max=1000`, headers[n % 2]));
    for (let reads = 0; reads < 160 && !socket.destroyed; reads++) {
      socket.read(65_536);
      await sleep(50);
    }
    socket.resetAndDestroy();
  });
  await Promise.all(work);
  const whole = await readWhole(target, `${largeStreamsPath}&_m=1&max=1000`);
  assert(whole > 50 * mib, `the whole page has only ${Math.round(whole / mib)} MiB`);
}

/** @returns the bytes of an answer that is read as fast as it comes */
async function readWhole(target: Target, path: string): Promise<number> {
  const { socket, closed } = await openConnection(target.port);
  let bytes = 0;
  socket.removeAllListeners('data').on('data', (chunk: Buffer) => {
    bytes += chunk.length;
  });
  socket.write(formatRequest(target, path, 'Connection: close\r\n'));
  const limit = setTimeout(() => socket.destroy(), 30_000);
  await closed;
  clearTimeout(limit);
  return bytes;
}
