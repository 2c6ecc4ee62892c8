import { once } from 'node:events';
import { createReadStream } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { generate } from 'mqtt-packet';
import { findProgram } from '../../../scripts/support/service-process.js';
import { issueKey } from '../../../src/objects/api-keys.js';
import type { Balancer } from '../../support/balancer.js';
import { useTestService } from '../../support/expect-status.js';
import { startHaproxy } from '../../support/haproxy.js';
import { startNginx } from '../../support/nginx.js';
import { findFreePort, sendRequest, waitUntil } from '../../support/process.js';
import { startTestService } from '../../support/service.js';
import { runTool } from '../../support/tools.js';

const trusted_proxies = ['127.0.0.1/32'];
/** Another address of this machine, which is no proxy. */
const client_address = '127.0.0.9';
const accessLines: string[] = [];
const warnings: object[] = [];
const log = { debug() {}, info() {}, error() {}, warn: (fields: object) => void warnings.push({ ...fields }) };
const mqtt_port = await findFreePort();
const ctx = await useTestService({
  ...{ mqtt_port, trusted_proxies, log, log_format: 'combined' },
  writeLine: (line) => void accessLines.push(line),
});
const line_count = 50_000;
/** Every hundredth line creates a model; the others are devices that lack all fields. */
const created = line_count / 100;
const oneParent = 'exactly one of id_group and id_asset must be given';
const details = { type: 'is required', name: 'is required', id_group: oneParent, id_asset: oneParent };
let folder: string;
let file: string;
let size: number;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'proxies-'));
  file = join(folder, 'large.ndjson');
  const properties = { note: 'x'.repeat(960) };
  const lines = Array.from({ length: line_count }, (_, number) =>
    JSON.stringify(
      number % 100 === 0 ? { resource: 'model', name: `M ${number}`, properties } : { resource: 'device', properties },
    ),
  );
  const body = `${lines.join('\n')}\n`;
  size = body.length;
  expect(size).toBeGreaterThan(50_000_000);
  await writeFile(file, body);
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** Sends the file to the import, and only then reads the answer. */
async function sendAllFirst(url: string, key: string): Promise<string> {
  const headers = { 'service.apikey': key, 'Content-Length': size };
  const sent = request(`${url}/import/`, { method: 'POST', headers, agent: false });
  const answered = once(sent, 'response');
  await pipeline(createReadStream(file), sent);
  const [response] = await answered;
  return text(response);
}

const proxies: Record<string, () => Promise<Pick<Balancer, 'url' | 'close'>>> = {
  nginx: () => startNginx(folder, ctx.service.url),
  haproxy: async () => {
    const haproxy = await startHaproxy(folder, [{ url: ctx.service.url, mqtt_port }]);
    await haproxy.waitForReady(2);
    return haproxy;
  },
};

describe.each(Object.entries(proxies))('behind %s (package of Debian) with the shipped file', (name, start) => {
  const itWithProxy = findProgram(name) === undefined ? it.skip : it;
  let proxy: Pick<Balancer, 'url' | 'close'> | undefined;
  beforeAll(async () => {
    if (findProgram(name) !== undefined) proxy = await start();
  });
  afterAll(() => proxy?.close());

  itWithProxy('the log shows the client', async () => {
    const socket = connect({
      port: Number(new URL(proxy?.url ?? '').port),
      host: '127.0.0.1',
      localAddress: client_address,
    });
    socket.write('GET /devices/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n');
    expect(await text(socket)).toContain(' 401 ');
    await waitUntil(() => accessLines.some((line) => line.startsWith(`${client_address} - - `)));
    accessLines.length = 0;
  });

  itWithProxy('the metrics are not served, whatever form the path has, and all else is', async () => {
    const port = Number(new URL(proxy?.url ?? '').port);
    const ask = async (target: string) => {
      const socket = connect(port, '127.0.0.1');
      socket.write(`GET ${target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`);
      const answer = await text(socket);
      expect(answer).not.toContain('http_request_duration_seconds');
      return Number(answer.split(' ')[1]);
    };
    for (const path of ['/metrics', '/metrics/', '/metrics?a=1', 'http://x/metrics']) expect(await ask(path)).toBe(404);
    for (const path of ['/%6detrics', '//metrics', '/x/../metrics', '/metrics#x', '/METRICS']) await ask(path);
    expect(await ask('/readyz')).toBe(200);
    expect(await ask('/devices/')).toBe(401);
  });

  itWithProxy('50 MB are imported for clients that send all first, and for npm run import', async () => {
    const url = proxy?.url ?? '';
    const { key } = await issueKey(ctx.service.db, { account: name, username: 'u', scope: 'write' }, 0);
    const answer = await sendAllFirst(url, key);
    const failed = line_count - created;
    const last = answer.trimEnd().split('\n').slice(-2);
    expect(last.map((line) => JSON.parse(line))).toEqual([
      { line: line_count, code: 4003, details },
      { totals: { created, updated: 0, skipped: 0, failed } },
    ]);
    expect(answer.split('\n')).toHaveLength(line_count + 2);
    const { code, out, complaints } = await runTool('import', [file, '--url', url, '--key', key]);
    expect([code, complaints]).toEqual([1, [`0 created, 0 updated, ${created} skipped, ${failed} failed`]]);
    expect(out.split('\n')).toHaveLength(failed + 1);
  });
});

/** @returns the return code of the CONNACK that an unknown client gets */
async function logIn(mqtt_url: string): Promise<number> {
  const { port } = new URL(mqtt_url);
  const socket = connect({ port: Number(port), host: '127.0.0.1', localAddress: client_address });
  socket.write(generate({ cmd: 'connect', clientId: 'c', username: 'u', password: Buffer.from('p'), clean: true }));
  const [connack] = await once(socket, 'data');
  socket.destroy();
  return connack[3];
}

const itWithHaproxy = findProgram('haproxy') === undefined ? it.skip : it;

itWithHaproxy('HAProxy (package of Debian) passes on what instances answer that are all unready', async () => {
  const port = await findFreePort();
  const unready = await startTestService({ uri: 'mongodb://127.0.0.1:9/none', mqtt_port: port, trusted_proxies, log });
  const inner = await mkdtemp(join(folder, 'unready-'));
  const haproxy = await startHaproxy(inner, [{ url: unready.url, mqtt_port: port }]);
  try {
    await haproxy.waitForReady(0);
    const reply = await sendRequest('GET', `${haproxy.url}/devices/`, undefined, { 'service.apikey': 'any' });
    expect([reply.status, reply.body.code]).toEqual([503, 5031]);
    expect(await logIn(haproxy.mqtt_url)).toBe(3);
  } finally {
    await haproxy.close();
    await unready.stop();
  }
});

itWithHaproxy('HAProxy (package of Debian) tells the broker the address of the client', async () => {
  const haproxy = await startHaproxy(await mkdtemp(join(folder, 'mqtt-')), [{ url: ctx.service.url, mqtt_port }]);
  try {
    await haproxy.waitForReady(2);
    expect(await logIn(haproxy.mqtt_url)).toBe(4);
    await waitUntil(() => warnings.some((fields) => 'ip' in fields && fields.ip === client_address));
  } finally {
    await haproxy.close();
  }
});
