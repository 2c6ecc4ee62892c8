import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect as connectTcp } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type { IPublishPacket } from 'mqtt';
import { openTlsFiles, type TlsFiles } from '../../src/http/tls-files.js';
import { type Certificate, createCertificate } from '../support/certificates.js';
import { encodeConnect, type MqttService, password, proxy_address, startMqtt } from '../support/mqtt.js';
import { waitFor } from '../support/process.js';
import { type Api, pathOf } from '../support/service.js';

/** MQTT over TLS, and certificates of devices (reference/mqtt.md#certificates-of-devices). */
const folder = mkdtempSync(join(tmpdir(), 'tls-'));
const authority = createCertificate(folder, { name: 'devices' });
const server = createCertificate(folder, { name: 'service' });
const caFile = join(folder, 'ca.pem');
const logged: [string, object][] = [];
let ctx: MqttService;
let tls: TlsFiles;
let port: number;
let api: Api;
let device: Awaited<ReturnType<MqttService['account']>>['device'];

beforeAll(async () => {
  writeFileSync(caFile, authority.cert);
  ctx = await startMqtt();
  const config = { tls_cert_file: server.certFile, tls_key_file: server.keyFile, tls_client_ca_file: caFile };
  const log = (fields: object, message: string) => logged.push([message, fields]);
  const opened = await openTlsFiles(config, { info: log, warn: log, error: log }, Date.now);
  if (opened === undefined) throw new Error('no TLS');
  tls = opened;
  port = await ctx.broker.listen('127.0.0.1', 0, tls);
  ({ api, device } = await ctx.account('acme'));
});
afterAll(async () => {
  tls.close();
  await ctx.stop();
  rmSync(folder, { recursive: true });
});

const optionsOf = (certificate?: Certificate) => ({
  url: `mqtts://127.0.0.1:${port}`,
  rejectUnauthorized: false,
  ...(certificate && { cert: certificate.cert, key: certificate.key }),
});
const certify = (id: string, issuer = authority) => createCertificate(folder, { name: id, issuer });

it('lets a device in with its password, over TLS 1.2 and 1.3 only', async () => {
  const { id, username } = await device();
  for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
    const limits = { minVersion: version, maxVersion: version };
    const client = await ctx.connect(username, { ...optionsOf(), ...limits });
    await client.publish(`${id}/streams`, { version });
  }
  expect(await ctx.stored(id)).toEqual([{ version: 'TLSv1.2' }, { version: 'TLSv1.3' }]);
  const old = { ...optionsOf(), minVersion: 'TLSv1.1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' } as const;
  expect(await ctx.refusal(username, old)).not.toBe(0);
  expect(await ctx.refusal(username, { ...optionsOf(), password: 'wrong password' })).toBe(4);
  expect(await ctx.refusal(undefined, optionsOf())).toBe(4);
});

it('takes the certificate of a device for its login, with the rights of the device', async () => {
  const { id, topics } = await device(['shared/+']);
  const other = await device();
  const client = await ctx.connect(undefined, optionsOf(certify(id)));
  await client.publish(`${id}/streams`, { by: 'certificate' });
  expect(await ctx.stored(id)).toEqual([{ by: 'certificate' }]);
  expect(await client.subscribe(`${id}/state/desired`)).toEqual([1]);
  expect(await client.subscribe('shared/news')).toEqual([1]);
  expect(await client.subscribe(`${other.id}/streams`)).toEqual([128]);
  // a topic that is granted and withdrawn later counts too
  await api.post(topics, { name: 'later' });
  expect(await client.subscribe('later')).toEqual([1]);
  await api.delete(topics, { name: 'later' });
  ctx.service.advance(1);
  await ctx.broker.recheck();
  expect(await client.subscribe('later')).toEqual([128]);
});

it('speaks MQTT 5 with a client that shows a certificate', async () => {
  const { id } = await device(['five/+']);
  const client = await ctx.connect(undefined, { ...optionsOf(certify(id)), protocolVersion: 5 });
  const packets: IPublishPacket[] = [];
  client.client.on('message', (_topic, _payload, packet) => packets.push(packet));
  await client.subscribe('five/news', 1);
  const properties = { contentType: 'text/plain', userProperties: { a: '1' } };
  await client.client.publishAsync('five/news', 'over TLS', { qos: 1, properties });
  await client.received(1);
  expect(packets).toMatchObject([{ payload: Buffer.from('over TLS'), properties }]);
  await client.publish(`${id}/streams`, { five: true });
  expect(await ctx.stored(id)).toEqual([{ five: true }]);
  const nobody = { ...optionsOf(certify('nobody@acme')), protocolVersion: 5 } as const;
  expect(await ctx.refusal(undefined, nobody)).toBe(0x86);
  await client.end();
});

it('lets in a device without credentials, and keeps its session', async () => {
  const { id, credentials } = await device();
  await api.delete(pathOf('mqttdevices', id));
  expect((await api.put(credentials, { username: 'nobody', password })).status).toBe(404);
  const options = { ...optionsOf(certify(id)), clean: false, clientId: 'kept' };
  const client = await ctx.connect(undefined, options);
  await client.subscribe(`${id}/commands`);
  await ctx.broker.recheck();
  await client.end();
  await ctx.broker.recheck();
  await api.post(`${pathOf('devices', id)}commands/`, { name: 'wake' });
  const again = await ctx.connect(undefined, options);
  const [message] = await again.received(1);
  expect(JSON.parse(message?.text ?? '')).toMatchObject({ name: 'wake' });
});

it('finds the device by a URI of the certificate, where its identifier is long or holds separators', async () => {
  const { id } = await device([], { name: `Pumpe "9", Nord; URI:device:b ${'x'.repeat(18)}` });
  const uri = `URI:device:${encodeURIComponent(id)}`;
  const certificate = createCertificate(folder, {
    name: 'pump',
    alternatives: `DNS:pump.example,${uri}`,
    issuer: authority,
  });
  await (await ctx.connect(undefined, optionsOf(certificate))).publish(`${id}/streams`, { n: 1 });
  expect(await ctx.stored(id)).toEqual([{ n: 1 }]);
  const two = createCertificate(folder, { name: id.slice(-9), alternatives: `${uri},URI:device:b`, issuer: authority });
  expect(await ctx.refusal(undefined, optionsOf(two))).toBe(4);
});

it('takes a username only if it names the same device', async () => {
  const { id, username } = await device();
  const other = await device();
  const options = optionsOf(certify(id));
  expect(await ctx.refusal(username, options)).toBe(0);
  expect(await ctx.refusal(id, { ...options, password: 'any password' })).toBe(0);
  expect(await ctx.refusal(other.username, options)).toBe(4);
  expect(await ctx.refusal('nobody', options)).toBe(4);
});

it('refuses unknown and disabled devices, and ends their connections', async () => {
  expect(await ctx.refusal(undefined, optionsOf(certify('nobody@acme')))).toBe(4);
  const { id } = await device();
  const client = await ctx.connect(undefined, optionsOf(certify(id)));
  await api.put(pathOf('devices', id), { enabled: false });
  await ctx.broker.recheck();
  await client.closed();
  expect(await ctx.refusal(undefined, optionsOf(certify(id)))).toBe(5);
});

it.each([
  ['of another issuer', () => createCertificate(folder, { name: 'elsewhere' }), 30, 'UNABLE_TO_VERIFY_LEAF_SIGNATURE'],
  ['that has ended', () => authority, -1, 'CERT_HAS_EXPIRED'],
])('refuses a certificate %s before it reads a packet', async (_what, findIssuer, days, detail) => {
  const { id, username } = await device();
  const certificate = createCertificate(folder, { name: id, issuer: findIssuer(), days });
  const before = ctx.logged.length;
  // no CONNACK, although the password is right
  expect(await ctx.refusal(username, optionsOf(certificate))).toBe(-1);
  expect(ctx.logged.slice(before).join()).toContain(`"detail":"${detail}"`);
});

it('reads the authorities again: a new one comes before the former goes', async () => {
  const { id } = await device();
  const next = createCertificate(folder, { name: 'next devices' });
  const [former, later] = [optionsOf(certify(id)), optionsOf(certify(id, next))];
  const connected = await ctx.connect(undefined, former);
  expect(await ctx.refusal(undefined, later)).toBe(-1);
  writeFileSync(caFile, authority.cert + next.cert);
  await tls.reload();
  expect([await ctx.refusal(undefined, former), await ctx.refusal(undefined, later)]).toEqual([0, 0]);
  writeFileSync(caFile, next.cert);
  await tls.reload();
  expect([await ctx.refusal(undefined, former), await ctx.refusal(undefined, later)]).toEqual([-1, 0]);
  // connections stay
  await connected.publish(`${id}/streams`, { n: 1 });
  writeFileSync(caFile, 'nonsense');
  await tls.reload();
  expect(await ctx.refusal(undefined, later)).toBe(0);
  expect(logged.at(-1)).toEqual([
    'TLS files are bad; the former stay in use',
    { reason: `TLS_CLIENT_CA_FILE ${caFile} is not valid: it holds no certificate in PEM` },
  ]);
  writeFileSync(caFile, authority.cert);
  await tls.reload();
});

it('believes the header of a proxy before the handshake', async () => {
  const { id } = await device();
  const certificate = certify(id);
  const socket = connectTcp({ port, host: '127.0.0.1', localAddress: proxy_address });
  socket.write('PROXY TCP4 203.0.113.7 127.0.0.1 5000 8883\r\n');
  const { cert, key } = certificate;
  const stream = connectTls({ socket, cert, key, rejectUnauthorized: false });
  const answered = new Promise<Buffer>((resolve) => stream.once('data', resolve));
  stream.write(encodeConnect({ username: id, clientId: 'behind-proxy', secret: '' }));
  expect(await answered).toEqual(Buffer.from([0x20, 2, 0, 0]));
  const list = () => api.get('/mqtt/connections/?client_id=behind-proxy');
  const { body } = await waitFor(list, ({ body }) => body.total_documents === 1);
  expect(body.result[0]).toMatchObject({ address: '203.0.113.7' });
  socket.destroy();
});

it('closes what is no handshake', async () => {
  const socket = connectTcp({ port, host: '127.0.0.1' });
  const closed = new Promise((resolve) => socket.once('close', resolve));
  socket.on('error', () => undefined).on('data', () => undefined);
  socket.write(encodeConnect({ username: 'a', clientId: 'plain' }));
  await closed;
});
