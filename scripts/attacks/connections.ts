import { setTimeout as sleep } from 'node:timers/promises';
import { awaitWithin, openConnection, openConnections, startInstance } from '../support/instance.js';
import { insertLargeStreams, largeStreamsPath } from './copies.js';
import { type Attack, assert, awaitStatuses, formatRequest, measureSlowest, type Target } from './target.js';

const stalled_limit_ms = 45_000;
const h2c = 'Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n';

/** Attacks on connections and requests (reference/requests.md#time-limits). */
export const connectionAttacks: readonly Attack[] = [
  ...['/readyz', '/devices/', '/docs/swagger-ui-bundle.js'].map((path) => ({
    name: `http: 1,100 pipelined requests of ${path}, unread, and a reset, three times`,
    run: (target: Target) => resetPipeline(target, path),
  })),
  { name: 'http: 200 refused upgrades with a byte after the refusal', run: refuseUpgrades },
  { name: 'http: GET and POST with Upgrade: h2c', run: offerHttp2 },
  { name: 'http: 1,001 bodies that are sent slowly', run: sendSlowBodies },
  { name: 'http: 1,000 answers that are not read', run: leaveAnswersUnread },
  { name: 'http: clients that close their side after the request', run: halfClose },
  { name: 'http: two Host headers, and invalid ones', run: sendBadHosts },
  { name: 'http: SIGTERM with 8 kept-alive clients', run: stopWithClients },
  { name: 'http: 1,000 unknown keys per second', run: guessKeys },
];

async function resetPipeline(target: Target, path: string): Promise<void> {
  for (let round = 0; round < 3; round++) {
    const { socket } = await openConnection(target.port);
    socket.pause();
    socket.write(formatRequest(target, path).repeat(1100));
    await sleep(100);
    socket.resetAndDestroy();
  }
  await sleep(200);
  const { status } = await target.send('GET', '/projects/');
  assert(status === 200, `the account itself gets ${status} afterwards`);
}

async function refuseUpgrades(target: Target): Promise<void> {
  const upgrade = 'Connection: Upgrade\r\nUpgrade: websocket\r\n';
  const refused = await openConnections(target.port, 200);
  for (const { socket } of refused) socket.write(formatRequest(target, '/mqtt', upgrade));
  await Promise.all(refused.map((connection) => awaitStatuses(connection, 1, 'a refused upgrade')));
  for (const { socket } of refused) socket.write('x');
  const closed = Promise.all(refused.map((connection) => connection.closed));
  await awaitWithin(closed, 5000, 'closing refused upgrades');

  const other = await openConnection(target.port);
  other.socket.write(formatRequest(target, '/none/', upgrade));
  const [status] = await awaitStatuses(other, 1, 'a WebSocket upgrade of another path');
  other.socket.destroy();
  assert(status === 404, `a WebSocket upgrade of an unknown path gets ${status} instead of 404`);
}

async function offerHttp2(target: Target): Promise<void> {
  const connection = await openConnection(target.port);
  connection.socket.write(formatRequest(target, '/projects/', h2c));
  await awaitStatuses(connection, 1, 'GET with Upgrade: h2c');
  connection.socket.write(formatRequest(target, '/models/', h2c, 'POST', JSON.stringify({ name: 'offered h2c' })));
  await awaitStatuses(connection, 2, 'POST with Upgrade: h2c');
  connection.socket.write(formatRequest(target, '/projects/'));
  const statuses = await awaitStatuses(connection, 3, 'a request after them');
  connection.socket.destroy();
  assert(statuses.join() === '200,200,200', `the statuses are ${statuses} instead of 200`);
}

async function sendSlowBodies(target: Target): Promise<void> {
  const slow = await openConnections(target.port, 1001);
  const head = `POST /models/ HTTP/1.1\r\nHost: x\r\nservice.apikey: ${target.key}\r\nContent-Length: 1000\r\n\r\n{`;
  for (const { socket } of slow) socket.write(head);
  const slowest_ms = await measureSlowest(target, async () => {
    for (let second = 0; second < 3; second++) {
      await sleep(1000);
      for (const { socket } of slow) socket.write(' ');
    }
  });
  const own = await target.send('POST', '/models/', { name: 'besides slow bodies' });
  for (const { socket } of slow) socket.destroy();
  assert(own.status === 200, `the account itself gets ${own.status} / ${own.code} meanwhile`);
  assert(slowest_ms < target.calm_limit_ms, `another account waited ${slowest_ms} ms`);
}

/**
 * Leaves 980 short answers and 20 pages of 20 MB unread. The kernel holds over 6 MB of each answer, so more long ones would
 * exhaust its memory for TCP and test the machine instead.
 */
async function leaveAnswersUnread(target: Target): Promise<void> {
  await insertLargeStreams(target, 340);
  const unread = await openConnections(target.port, 1000);
  for (const [n, { socket }] of unread.entries()) {
    socket.pause();
    socket.write(formatRequest(target, n < 20 ? `${largeStreamsPath}&max=340` : '/docs/swagger-ui.css'));
  }
  await sleep(3000);
  const slowest_ms = await measureSlowest(target, () => sleep(3000));
  // the service notices a closed connection, and so does the client: not to read is not to see the end either
  for (const { socket } of unread.slice(10)) socket.destroy();
  const stalled = unread.slice(0, 10);
  await sleep(stalled_limit_ms);
  for (const { socket } of stalled) socket.resume();
  const closed = Promise.all(stalled.map((connection) => connection.closed));
  await awaitWithin(closed, 5000, `after ${stalled_limit_ms / 1000} s, closing a connection without progress`);
  assert(slowest_ms < target.calm_limit_ms, `another account waited ${slowest_ms} ms`);
}

async function halfClose(target: Target): Promise<void> {
  for (let round = 0; round < 20; round++) {
    const { socket, closed, statuses } = await openConnection(target.port);
    socket.end(formatRequest(target, '/projects/'));
    await awaitWithin(closed, 5000, 'answering a client that has closed its side');
    assert(statuses().join() === '200', `a client that closed its side gets ${statuses().join() || 'no answer'}`);
  }
}

async function sendBadHosts(target: Target): Promise<void> {
  const hosts = ['x\r\nHost: y', 'x\r\nHost: x', 'a b', 'user@host', 'host/path', '[::1'];
  for (const host of hosts) {
    const connection = await openConnection(target.port);
    connection.socket.write(`GET /projects/ HTTP/1.1\r\nHost: ${host}\r\nservice.apikey: ${target.key}\r\n\r\n`);
    const [status] = await awaitStatuses(connection, 1, `Host: ${JSON.stringify(host)}`);
    connection.socket.destroy();
    assert(status === 400, `Host: ${JSON.stringify(host)} gets ${status} instead of 400`);
  }
}

/** Stops an instance of its own while kept-alive clients go on sending: each request is answered or never accepted. */
async function stopWithClients(): Promise<void> {
  const instance = await startInstance({ SHUTDOWN_DELAY_S: '1' });
  try {
    const request = `GET /projects/ HTTP/1.1\r\nHost: x\r\nservice.apikey: ${instance.key}\r\n\r\n`;
    const clients = await openConnections(Number(new URL(instance.url).port), 8);
    let unanswered = 0;
    const work = clients.map(async ({ socket, statuses, received }) => {
      for (let sent = 1; !socket.destroyed && sent <= 10_000; sent++) {
        socket.write(request);
        while (statuses().length < sent && !socket.destroyed) await sleep(5);
        if (statuses().length < sent) unanswered++;
        if (/\r\nConnection: close\r\n/i.test(received().toString('latin1'))) return;
        await sleep(10);
      }
    });
    await sleep(500);
    const begun_ms = performance.now();
    instance.kill('SIGTERM');
    await awaitWithin(Promise.all(work), 15_000, 'ending the clients');
    const code = await awaitWithin(instance.ended, 15_000, 'stopping');
    assert(unanswered === 0, `${unanswered} of 8 clients were cut while they waited for an answer`);
    assert(code === 0, `the service ends with ${code}`);
    assert(performance.now() - begun_ms < 12_000, `stopping took ${Math.round(performance.now() - begun_ms)} ms`);
  } finally {
    await instance.close();
  }
}

/** Sends 3,000 different unknown keys in 3 s, then one unknown key 2,000 times, and counts the look-ups of both. */
async function guessKeys(target: Target): Promise<void> {
  const before = await countKeyLookups(target);
  const slowest_ms = await measureSlowest(target, async () => {
    for (let tenth = 0; tenth < 30; tenth++) {
      const keys = Array.from({ length: 100 }, (_, n) => `unknown-${tenth}-${n}`);
      await Promise.all([sendKeys(target, keys), sleep(100)]);
    }
  });
  const between = await countKeyLookups(target);
  const begun_ms = performance.now();
  for (let sent = 0; sent < 2000; sent += 100) await sendKeys(target, Array(100).fill('one-unknown-key'));
  const seconds = Math.ceil((performance.now() - begun_ms) / 1000);
  const after = await countKeyLookups(target);
  const slack = 100;
  assert(between - before <= 3000 + slack, `3,000 unknown keys cost ${between - before} look-ups`);
  assert(
    after - between <= 20 * (seconds + 1) + slack,
    `one unknown key cost ${after - between} look-ups in ${seconds} s`,
  );
  assert(slowest_ms < target.calm_limit_ms, `another account waited ${slowest_ms} ms`);
}

/** Sends a request for each key on one connection. @throws Error unless all are refused with 401 */
async function sendKeys(target: Target, keys: readonly string[]): Promise<void> {
  const connection = await openConnection(target.port);
  connection.socket.write(keys.map((key) => formatRequest({ ...target, key }, '/projects/')).join(''));
  const statuses = await awaitStatuses(connection, keys.length, 'requests with unknown keys');
  connection.socket.destroy();
  const other = statuses.find((status) => status !== 401);
  assert(other === undefined, `an unknown key gets ${other} instead of 401`);
}

/** Uses of the index in which keys are found by their digest, since the database was started. */
async function countKeyLookups(target: Target): Promise<number> {
  const db = await target.database();
  const indexes = await db
    .collection('keys')
    .aggregate([{ $indexStats: {} }])
    .toArray();
  return indexes
    .filter(({ key }) => key.digest !== undefined)
    .reduce((sum, { accesses }) => sum + Number(accesses.ops), 0);
}
