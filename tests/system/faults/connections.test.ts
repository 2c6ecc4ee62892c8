import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, expect, it } from '@jest/globals';
import { type RunningService, useSandbox, waitUntil } from '../../support/process.js';

const sandbox = useSandbox();
let service: RunningService;

beforeAll(async () => {
  service = await sandbox.service({ MQTT_PORT: '0' });
  await service.send('POST', '/projects/', { name: 'north', id_customer: 'c' });
});

/** A raw connection to the service and all that it has received. */
async function open(url = service.url): Promise<{ socket: Socket; text: () => string; ended: Promise<unknown> }> {
  const { hostname, port } = new URL(url);
  const socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true });
  let text = '';
  socket.setEncoding('latin1').on('data', (chunk) => {
    text += chunk;
  });
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  return { socket, text: () => text, ended: once(socket, 'end') };
}

const get = (path: string, headers = '') =>
  `GET ${path} HTTP/1.1\r\nHost: x\r\nservice.apikey: ${service.key}\r\n${headers}\r\n`;
const post = (path: string, body: string, headers = '') =>
  `POST ${path} HTTP/1.1\r\nHost: x\r\nservice.apikey: ${service.key}\r\nContent-Length: ${body.length}\r\n${headers}\r\n${body}`;
const statuses = (text: string) => [...text.matchAll(/HTTP\/1\.1 (\d{3})/g)].map(([, status]) => status);

async function expectAlive(): Promise<void> {
  const { status } = await service.send('GET', '/projects/north%40demo/');
  expect(status).toBe(200);
}

it.each(['/readyz', '/projects/', '/docs/swagger-ui-bundle.js'])(
  'serves on after 1,100 pipelined requests of %s and a reset',
  async (path) => {
    for (let round = 0; round < 3; round++) {
      const { socket } = await open();
      socket.pause();
      socket.write(get(path).repeat(1100));
      await sleep(50);
      socket.resetAndDestroy();
    }
    await sleep(100);
    await Promise.all(Array.from({ length: 20 }, expectAlive));
  },
);

it('answers many pipelined requests of one connection in order', async () => {
  const { socket, text } = await open();
  const paths = Array.from({ length: 60 }, (_, n) => (n % 3 === 0 ? '/none/' : '/projects/north%40demo/'));
  socket.write(paths.map((path) => get(path)).join(''));
  await waitUntil(() => statuses(text()).length === 60);
  expect(statuses(text())).toEqual(paths.map((path) => (path === '/none/' ? '404' : '200')));
  socket.destroy();
});

it('answers a client that closes its side after the request', async () => {
  const { socket, text, ended } = await open();
  socket.end(get('/projects/north%40demo/'));
  await ended;
  expect(text()).toMatch(/^HTTP\/1\.1 200 .*"name":"north"/s);
});

it('treats an upgrade to HTTP/2 as an ordinary request, bodies included', async () => {
  const h2c = 'Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n';
  const { socket, text } = await open();
  socket.write(get('/projects/north%40demo/', h2c));
  await waitUntil(() => statuses(text()).length === 1);
  socket.write(post('/models/', '{"name":"h2c"}', h2c));
  await waitUntil(() => statuses(text()).length === 2);
  socket.write(get('/projects/north%40demo/'));
  await waitUntil(() => statuses(text()).length === 3);
  expect(statuses(text())).toEqual(['200', '200', '200']);
  expect(text()).toContain('"code":2001');
  socket.destroy();
});

it('answers a WebSocket upgrade of another path as an ordinary request', async () => {
  const { socket, text } = await open();
  const upgrade = 'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n';
  socket.write(get('/none/', upgrade));
  await waitUntil(() => statuses(text()).length === 1);
  expect(text()).toMatch(/^HTTP\/1\.1 404 .*"code":4041/s);
  socket.destroy();
});

it('closes a refused WebSocket upgrade although the client goes on sending', async () => {
  const { socket, text, ended } = await open();
  socket.write(get('/mqtt', 'Connection: Upgrade\r\nUpgrade: websocket\r\n'));
  await waitUntil(() => statuses(text()).length === 1);
  socket.write('x');
  await ended;
  expect(statuses(text())).toEqual(['400']);
  socket.destroy();
});

it.each([
  ['two Host headers', 'Host: y\r\n'],
  ['two equal Host headers', 'Host: x\r\n'],
])('rejects %s with 400', async (_name, header) => {
  const { socket, text } = await open();
  socket.write(get('/projects/', header));
  await waitUntil(() => statuses(text()).length === 1);
  expect(statuses(text())).toEqual(['400']);
  socket.destroy();
});

it.each(['a b', 'user@host', 'host/path', '[::1'])('rejects the Host %s with 400', async (host) => {
  const { socket, text } = await open();
  socket.write(`GET /projects/ HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
  await waitUntil(() => statuses(text()).length === 1);
  expect(statuses(text())).toEqual(['400']);
  socket.destroy();
});

it('serves others while 1,001 bodies are being sent slowly', async () => {
  const slow = await Promise.all(Array.from({ length: 1001 }, () => open()));
  for (const { socket } of slow)
    socket.write(
      `POST /models/ HTTP/1.1\r\nHost: x\r\nservice.apikey: ${service.key}\r\nContent-Length: 100\r\n\r\n{"na`,
    );
  await sleep(200);
  await Promise.all(Array.from({ length: 20 }, expectAlive));
  for (const { socket } of slow) socket.destroy();
});

it('answers 5033 beyond the memory for bodies, and recovers', async () => {
  const { socket: group } = await open();
  group.destroy();
  const body = Buffer.alloc(15 * 1024 * 1024, ' ');
  const slow = await Promise.all(Array.from({ length: 6 }, () => open()));
  for (const { socket } of slow) {
    socket.write(
      `POST /devices/x%40demo/deviceconfigs/ HTTP/1.1\r\nHost: x\r\nservice.apikey: ${service.key}\r\nContent-Length: ${body.length + 1}\r\n\r\n`,
    );
    socket.write(body);
  }
  await waitUntil(() => slow.filter(({ text }) => statuses(text()).includes('503')).length >= 4);
  expect(slow.flatMap(({ text }) => statuses(text())).every((status) => status === '503')).toBe(true);
  for (const { socket } of slow) socket.destroy();
  await waitUntil(async () => (await service.send('POST', '/models/', { name: 'after the flood' })).status === 200);
});

it('answers every request that it received before SIGTERM, and those of kept-alive clients', async () => {
  const stopping = await sandbox.service({ MQTT_PORT: 'off', DATA_DIR: `${sandbox.folder}/stopping` });
  const clients = await Promise.all(Array.from({ length: 8 }, () => open(stopping.url)));
  const request = `GET /projects/ HTTP/1.1\r\nHost: x\r\nservice.apikey: ${stopping.key}\r\n\r\n`;
  const runs = clients.map(async ({ socket, text, ended }) => {
    let sent = 0;
    const send = () => {
      sent++;
      socket.write(request);
    };
    // at once: a client may be late by half a second
    socket.on('data', () => {
      if (statuses(text()).length === sent && !/connection: close/i.test(text())) send();
    });
    send();
    await ended.catch(() => undefined);
    return [sent, statuses(text()).length];
  });
  await waitUntil(() => clients.every(({ text }) => statuses(text()).length > 0));
  stopping.kill('SIGTERM');
  for (const [sent, answered] of await Promise.all(runs)) expect(answered).toBe(sent);
  for (const { text } of clients) expect(text()).toMatch(/connection: close/i);
  expect(await stopping.ended).toBe(0);
});

it('is not ready but serves for SHUTDOWN_DELAY_S', async () => {
  const data = { MQTT_PORT: 'off', DATA_DIR: `${sandbox.folder}/delayed`, SHUTDOWN_DELAY_S: '10' };
  const stopping = await sandbox.service(data);
  stopping.kill('SIGTERM');
  await waitUntil(async () => (await stopping.send('GET', '/readyz')).status === 503);
  const listed = await stopping.send('GET', '/projects/');
  expect([listed.status, listed.headers.connection]).toEqual([200, 'close']);
  expect(await stopping.ended).toBe(0);
});
