import { copyFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { type Certificate, createCertificate } from '../../support/certificates.js';
import { createClients } from '../../support/mqtt.js';
import {
  findFreePort,
  openSandbox,
  type RunningService,
  type Sandbox,
  sendRequest,
  waitUntil,
} from '../../support/process.js';

/** HTTPS, and the files of TLS (reference/configuration.md#tls). */
let sandbox: Sandbox;
let first: Certificate;
let certFile: string;
let keyFile: string;

beforeEach(async () => {
  sandbox = await openSandbox();
  first = createCertificate(sandbox.folder, { name: 'first' });
  [certFile, keyFile] = [join(sandbox.folder, 'cert.pem'), join(sandbox.folder, 'key.pem')];
  use(first);
});
afterEach(() => sandbox.close());

function use(certificate: Certificate): void {
  copyFileSync(certificate.certFile, certFile);
  copyFileSync(certificate.keyFile, keyFile);
}

const settings = () => ({ TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile, MQTTS_PORT: 'off' });

function openTls(port: number | string): Promise<TLSSocket> {
  const socket = connectTls({ port: Number(port), host: '127.0.0.1', rejectUnauthorized: false });
  return new Promise((resolve, reject) => socket.once('secureConnect', () => resolve(socket)).once('error', reject));
}

async function readName(port: number | string): Promise<unknown> {
  const socket = await openTls(port);
  const { subject } = socket.getPeerCertificate();
  socket.destroy();
  return subject.CN;
}

/** The answer to bytes, after which the client ends its side. */
async function exchange(socket: TLSSocket, bytes: string): Promise<string> {
  let received = '';
  socket.on('data', (chunk: Buffer) => {
    received += chunk;
  });
  const ended = new Promise((resolve) => socket.once('end', resolve));
  socket.end(bytes);
  await ended;
  return received;
}

it.each<[string, () => Record<string, string>, RegExp]>([
  [
    'a key alone',
    () => ({ TLS_CERT_FILE: '' }),
    /^TLS_CERT_FILE must be set: TLS_CERT_FILE, TLS_KEY_FILE work together/,
  ],
  [
    'authorities alone',
    () => ({ TLS_CERT_FILE: '', TLS_KEY_FILE: '', TLS_CLIENT_CA_FILE: '/ca' }),
    /^TLS_CERT_FILE must be set/,
  ],
  ['no file', () => ({ TLS_CERT_FILE: '/none.pem' }), /^TLS_CERT_FILE \/none\.pem cannot be read: ENOENT$/],
  ['a folder', () => ({ TLS_CLIENT_CA_FILE: '/tmp' }), /^TLS_CLIENT_CA_FILE \/tmp cannot be read: EISDIR$/],
  ['no certificate', () => ({ TLS_CERT_FILE: keyFile }), /^TLS_CERT_FILE \S+ is not valid: it holds no certificate/],
  ['no key', () => ({ TLS_KEY_FILE: certFile }), /^TLS_KEY_FILE \S+ is not valid: \S+/],
  [
    'the key of another certificate',
    () => ({ TLS_KEY_FILE: createCertificate(sandbox.folder, { name: 'other' }).keyFile }),
    /^TLS_KEY_FILE \S+ does not fit TLS_CERT_FILE \S+$/,
  ],
])('stops the start with one line for %s', async (_what, changed, line) => {
  const started = await sandbox.start({ ...settings(), ...changed() });
  expect([await started.ended, started.complaints()]).toEqual([1, [expect.stringMatching(line)]]);
});

it('speaks HTTPS only, as plain HTTP is spoken', async () => {
  const service = await sandbox.service({ ...settings(), BASE_PATH: '/api' });
  const { port } = new URL(service.url);
  expect(service.url).toMatch(/^https:\/\/127\.0\.0\.1:\d+$/);
  const { body } = await sendRequest('GET', `${service.url}/openapi.json`);
  expect(body.servers[0].url).toBe(`${service.url}/api`);
  // a client may end its side after the request, pipeline, and offer h2c
  const get = (more = '') => `GET /healthz HTTP/1.1\r\nHost: a\r\n${more}\r\n`;
  const answers = await exchange(
    await openTls(port),
    get() + get('Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n'),
  );
  expect(answers.match(/HTTP\/1\.1 200 OK/g)).toHaveLength(2);
  await expect(sendRequest('GET', `http://127.0.0.1:${port}/healthz`)).rejects.toThrow(/socket hang up|ECONNRESET/);
  // an open handshake and an idle connection do not hold the end up
  const idle = await openTls(port);
  await service.stop();
  idle.destroy();
  expect(await service.ended).toBe(0);
});

it.each(['1', '2'])(
  'uses changed files at once on SIGHUP, and the former where they are bad, with %s workers',
  async (WORKERS) => {
    const service = await sandbox.service({ ...settings(), WORKERS });
    const { port } = new URL(service.url);
    const read = () => readNames(port);
    expect(await read()).toEqual(['first']);
    const kept = await openTls(port);
    use(createCertificate(sandbox.folder, { name: 'second' }));
    service.kill('SIGHUP');
    await waitUntil(async () => (await read()).join() === 'second');
    expect(await exchange(kept, 'GET /healthz HTTP/1.0\r\n\r\n')).toContain('200 OK');
    writeFileSync(keyFile, 'nonsense');
    service.kill('SIGHUP');
    await waitUntil(() => service.err().includes(`TLS_KEY_FILE ${keyFile} is not valid`));
    expect(await read()).toEqual(['second']);
    expect(service.err().match(/is not valid/g)).toHaveLength(1);
  },
);

/** The names on several connections, so that all workers are reached. */
async function readNames(port: string): Promise<unknown[]> {
  return [...new Set(await Promise.all(Array.from({ length: 12 }, () => readName(port))))];
}

it('tells how long the certificate lasts, and warns in its last 14 days', async () => {
  const readTimeLeft = async (service: RunningService) => {
    const { text } = await sendRequest('GET', `${service.url}/metrics`);
    return Number(/^tls_certificate_ends_in_seconds (\S+)$/m.exec(text)?.[1]);
  };
  const service = await sandbox.service({ ...settings(), WORKERS: '2' });
  const days = (await readTimeLeft(service)) / 86_400;
  expect([days > 29.9, days <= 30]).toEqual([true, true]);
  expect(service.err()).not.toContain('certificate ends');
  use(createCertificate(sandbox.folder, { name: 'short', days: 13 }));
  service.kill('SIGHUP');
  await waitUntil(() => service.err().includes('the certificate ends soon'));
  await waitUntil(async () => (await readTimeLeft(service)) <= 13 * 86_400);
  service.kill('SIGHUP');
  expect(service.err().match(/the certificate ends soon/g)).toHaveLength(1);
});

it('serves MQTT over TLS, and over WebSocket on every worker, without a port without TLS', async () => {
  const port = await findFreePort();
  const service = await sandbox.service({ ...settings(), WORKERS: '2', MQTTS_PORT: String(port) });
  const id_project = await service.create('projects', { name: 'p', id_customer: 'c' });
  const id_service = await service.create('services', { name: 's', id_project });
  const id_group = await service.create('groups', { name: 'g', id_service });
  const id = await service.create('devices', { name: 'd', type: 'gateway', id_group });
  const login = { username: 'd', password: 'correct horse' };
  await service.send('POST', `/mqttdevices/${encodeURIComponent(id)}/credentials/`, login);
  const clients = createClients('');
  const urls = [`mqtts://127.0.0.1:${port}`, ...Array(8).fill(`${service.url.replace('https', 'wss')}/mqtt`)];
  for (const [n, url] of urls.entries()) {
    const client = await clients.connect('d', { url, rejectUnauthorized: false });
    await client.publish(`${id}/streams`, { n });
  }
  clients.close();
  const { body } = await service.send('GET', `/devices/${encodeURIComponent(id)}/streams/`);
  expect(body.total_documents).toBe(9);
});
