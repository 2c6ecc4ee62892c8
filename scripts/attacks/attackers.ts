import { once, setMaxListeners } from 'node:events';
import { createServer, type Server } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import mqtt from 'mqtt';
import { openConnections } from '../support/instance.js';
import { encodeConnect } from '../support/mqtt-packets.js';
import {
  type Attacker,
  format,
  holdOpen,
  insertDevices,
  repeat,
  repeatReads,
  type SharedAttack,
  send,
  subscribeUnread,
  trickleBodies,
} from './attacker.js';
import { insertStreamCopies } from './copies.js';
import { startStandIn } from './webdav-stand-in.js';

/** One attack for each thing that accounts share. */
export const sharedAttacks: readonly SharedAttack[] = [
  { name: '100 series of 100,000 streams', start: floodSeries },
  { name: '50 exports, read and unread', start: floodExports },
  { name: '90 feeds that resume at the first event', start: resumeFeeds },
  { name: '100 live feeds that are not read', start: leaveFeedsUnread },
  { name: '200 lists, searches and circles', start: floodLists },
  { name: '100 dry runs, bulk changes and moves', start: floodChanges },
  { name: '400 reads and creates at once', start: floodRequests },
  { name: '60 bodies of 15 MiB, and many small objects', start: fillBodies },
  { name: '200 pages and files that are not read', start: leaveAnswersUnread },
  { name: '20 imports, trickled and at full speed', start: floodImports },
  { name: '50 webhooks that hang, tests and retries', start: hangReceivers },
  { name: '50 webhooks with names that nobody answers', start: floodNames },
  { name: '200 listings, linkings and downloads that hang', start: hangStorage },
  { name: '20 MQTT subscribers that do not read', start: leaveMessagesUnread },
  { name: '300 MQTT log-ins with wrong passwords', start: floodLogins },
];

const mib = 1024 * 1024;

/** Gives the device `pump` streams of one measurement, a second apart. */
async function insertStreams(attacker: Attacker, max: number): Promise<string> {
  const { account, strength } = attacker;
  const count = max * strength;
  const path = `/devices/pump@${account}/streams/`;
  await send(attacker, 'POST', path, { data: { n: 1, text: 'x'.repeat(50) }, at: 1_700_000_000 });
  const place = (n: number) => ({ at: 1_700_000_000 + n });
  await insertStreamCopies(attacker, { '_id.account': account, protocol: 'http' }, { count, place });
  return path;
}

async function floodSeries(attacker: Attacker): Promise<void> {
  await insertStreams(attacker, 100_000);
  const span = 'at_from=1700000000&at_to=1700100000';
  repeatReads(attacker, 100, [`/devices/pump@${attacker.account}/series/?fields=n,text&points=5000&${span}`]);
}

async function floodExports(attacker: Attacker): Promise<void> {
  const path = await insertStreams(attacker, 100_000);
  repeatReads(attacker, 50, [`${path}?format=ndjson`, `${path}?format=csv`]);
  holdOpen(attacker, 20, () => format(attacker, 'GET', `${path}?format=ndjson`));
}

async function resumeFeeds(attacker: Attacker): Promise<void> {
  const { text } = await send(attacker, 'GET', '/events/?order=1&max=1');
  const first = String(JSON.parse(text).result[0]?.id);
  await insertStreams(attacker, 50_000);
  const { url, key } = attacker;
  repeat(attacker, 90, async (lane) => {
    const path = lane % 3 === 0 ? '/events/live/' : '/streams/live/';
    const leaving = AbortSignal.any([attacker.signal, AbortSignal.timeout(1000)]);
    const response = await fetch(`${url}${path}?after=${first}`, {
      headers: { 'service.apikey': key },
      signal: leaving,
    });
    for await (const _chunk of response.body ?? []) if (leaving.aborted) return;
    if (response.status !== 200) await sleep(50);
  });
}

async function leaveFeedsUnread(attacker: Attacker): Promise<void> {
  holdOpen(attacker, 100, (lane) => format(attacker, 'GET', lane % 2 === 0 ? '/events/live/' : '/streams/live/'));
  const body = Array.from({ length: 100 }, (_, n) => ({ data: { n, text: 'x'.repeat(5000) } }));
  repeat(attacker, 4, () => send(attacker, 'POST', `/devices/pump@${attacker.account}/streams/`, body));
}

async function floodLists(attacker: Attacker): Promise<void> {
  await insertDevices(attacker, 30_000);
  const streams = await insertStreams(attacker, 100_000);
  await send(attacker, 'POST', '/models/', { name: 'Pump', measures: [{ path: 'n', filter: true }] });
  repeatReads(attacker, 200, [
    '/devices/?latest.n_from=0&type=pump',
    '/devices/?sort=latest.n&fields=name,latest&max=1000',
    '/devices/?q=opie',
    '/devices/?type=copy&sort=status&max=1000',
    '/devices/?geo_lon=1&geo_lat=1&geo_distance=1000&max=1000',
    `${streams}?max=1&protocol=none`,
    `${streams}?max=1000&offset=90000&_m=1`,
    '/devices/?status=disconnected&sort=name&order=-1&max=1000',
  ]);
}

async function floodChanges(attacker: Attacker): Promise<void> {
  const { account, strength } = attacker;
  await insertDevices(attacker, 10_000);
  await send(attacker, 'POST', '/services/', { name: 'other', id_project: `plant@${account}` });
  repeat(attacker, 100, async (lane) => {
    const replies = [
      () => send(attacker, 'DELETE', `/projects/plant@${account}/?dry_run=1`),
      () => send(attacker, 'PATCH', '/devices/?type=copy', { description: 'x' }),
      () => send(attacker, 'PATCH', `/devices/?type=copy&confirm=${10_000 * strength + 1}`, { firmware: `${lane}` }),
      () =>
        send(attacker, 'PUT', `/groups/hall@${account}/`, {
          id_service: `${lane % 2 ? 'other' : 'cooling'}@${account}`,
        }),
    ];
    const { status } = (await replies[lane % replies.length]?.()) ?? {};
    if (status !== 200) await sleep(50);
  });
}

async function floodRequests(attacker: Attacker): Promise<void> {
  const { account } = attacker;
  let created = 0;
  repeat(attacker, 400, (lane) =>
    lane % 2 === 0
      ? send(attacker, 'GET', `/devices/pump@${account}/`)
      : send(attacker, 'POST', '/models/', { name: `flood ${created++}` }),
  );
}

async function fillBodies(attacker: Attacker): Promise<void> {
  const { account } = attacker;
  const path = `/devices/pump@${account}/deviceconfigs/`;
  const head = format(attacker, 'POST', path, `Content-Length: ${15 * mib + 1}\r\n`);
  holdOpen(attacker, 60, () => Buffer.concat([Buffer.from(head), Buffer.alloc(15 * mib, ' ')]));
  const stream = `{"device":"pump@${account}","data":{"k":[${'{"a":1},'.repeat(119)}{}]}}`;
  const body = `[${`${stream},`.repeat(900)}${stream}]`;
  repeat(attacker, 12, async () => {
    const { status } = await send(attacker, 'POST', '/streams/', body);
    if (status !== 200) await sleep(50);
  });
}

async function leaveAnswersUnread(attacker: Attacker): Promise<void> {
  const { account } = attacker;
  const device = `/devices/pump@${account}`;
  const file = Buffer.alloc(10 * mib).toString('base64');
  await send(attacker, 'POST', `${device}/deviceconfigs/`, { name: 'large', version: '1', file });
  await send(attacker, 'POST', `${device}/streams/`, { protocol: 'large', data: { text: 'x'.repeat(60_000) } });
  await insertStreamCopies(attacker, { '_id.account': account, protocol: 'large' }, { count: 1000 });
  const paths = [`${device}/streams/?protocol=large&max=1000`, `${device}/deviceconfigs/large/`];
  holdOpen(attacker, 200, (lane) => format(attacker, 'GET', paths[lane % 2] ?? ''));
}

async function floodImports(attacker: Attacker): Promise<void> {
  const { strength } = attacker;
  const lines = Array.from({ length: 2000 }, (_, n) => `{"resource":"model","name":"imported ${n}"}\n`).join('');
  const cells = `name,${','.repeat(100_000)}\n`;
  repeat(attacker, 10, async (lane) => {
    const { status } = await send(attacker, 'POST', '/import/?on_conflict=update', lane % 2 === 0 ? lines : cells);
    if (status !== 200) await sleep(50);
  });
  await trickleBodies(attacker, Math.max(1, Math.round(10 * strength)));
}

/** Starts a server that does what it should not: in turn it answers 101, half a header, or nothing. */
async function startHangingServer(signal: AbortSignal): Promise<string> {
  let accepted = 0;
  const answers = [
    'HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n',
    'HTTP/1.1 200 O',
    '',
  ];
  const server: Server = createServer((socket) => {
    socket.on('error', () => undefined).resume();
    socket.write(answers[accepted++ % answers.length] ?? '');
    signal.addEventListener('abort', () => socket.destroy(), { once: true });
  });
  setMaxListeners(0, signal);
  await once(server.listen(0, '127.0.0.1'), 'listening');
  signal.addEventListener('abort', () => server.close(), { once: true });
  const address = server.address();
  return `http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}/`;
}

/** Creates webhooks of every event, and events. */
async function createWebhooks(attacker: Attacker, urlOf: (number: number) => string): Promise<number> {
  const count = Math.max(2, Math.round(50 * attacker.strength));
  for (let number = 0; number < count; number++)
    await send(attacker, 'POST', '/webhooks/', { name: `hang ${number}`, url: urlOf(number), types: ['*'] });
  let created = 0;
  repeat(attacker, 2, () =>
    Promise.all([send(attacker, 'POST', '/models/', { name: `event ${created++}` }), sleep(50)]),
  );
  return count;
}

async function testWebhooks(attacker: Attacker, count: number): Promise<void> {
  repeat(attacker, 100, async (lane) => {
    const { status } = await send(attacker, 'POST', `/webhooks/hang%20${lane % count}@${attacker.account}/test/`);
    if (status !== 200) await sleep(50);
  });
}

async function hangReceivers(attacker: Attacker): Promise<void> {
  const url = await startHangingServer(attacker.signal);
  await testWebhooks(attacker, await createWebhooks(attacker, () => url));
}

async function floodNames(attacker: Attacker): Promise<void> {
  await testWebhooks(
    attacker,
    await createWebhooks(attacker, (number) => `http://nobody-${number}-${Date.now()}.test/`),
  );
}

async function hangStorage(attacker: Attacker): Promise<void> {
  const standIn = await startStandIn();
  attacker.signal.addEventListener('abort', () => void standIn.stop(), { once: true });
  const path = `/external/webdav/user/${attacker.account}/`;
  const body = { url: standIn.url, username: 'u', password: 'p' };
  await send(attacker, 'PUT', path, body);
  const { text } = await send(attacker, 'GET', `${path}?op=all`);
  const { pathname } = new URL(JSON.parse(text).result[0].url);
  standIn.isStalled = true;
  repeat(attacker, 200, async (lane) => {
    const requests = [
      () => send(attacker, 'GET', `${path}?op=all`),
      () => send(attacker, 'PUT', path, body),
      () => send(attacker, 'GET', pathname),
    ];
    const { status } = (await requests[lane % requests.length]?.()) ?? {};
    if (status !== 200) await sleep(50);
  });
}

async function leaveMessagesUnread(attacker: Attacker): Promise<void> {
  const { mqttPort, account, password, signal } = attacker;
  const options = { username: account, password, reconnectPeriod: 0 };
  const url = `mqtt://127.0.0.1:${mqttPort}`;
  subscribeUnread(attacker, 20, 'plant/#');
  const payload = 'x'.repeat(500_000);
  repeat(attacker, 4, async () => {
    const client = await mqtt.connectAsync(url, options);
    client.on('error', () => undefined);
    for (let sent = 0; sent < 200 && client.connected && !signal.aborted; sent++)
      await Promise.race([client.publishAsync('plant/large', payload, { qos: 1 }), sleep(1000)]);
    await client.endAsync(true);
  });
}

async function floodLogins(attacker: Attacker): Promise<void> {
  const { mqttPort, account, strength, signal } = attacker;
  void (async () => {
    for (let round = 0; !signal.aborted; round++) {
      const connections = await openConnections(mqttPort, Math.max(1, Math.round(300 * strength))).catch(() => []);
      for (const [lane, { socket }] of connections.entries())
        socket.write(encodeConnect(account, `wrong ${round} ${lane}`, `guess-${round}-${lane}`));
      await sleep(500);
      for (const { socket } of connections) socket.resetAndDestroy();
    }
  })();
}
