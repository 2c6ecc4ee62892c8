import { once } from 'node:events';
import { createReadStream } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { findProgram } from '../../../scripts/support/service-process.js';
import { issueKey } from '../../../src/objects/api-keys.js';
import type { Balancer } from '../../support/balancer.js';
import { useTestService } from '../../support/expect-status.js';
import { startHaproxy } from '../../support/haproxy.js';
import { startNginx } from '../../support/nginx.js';
import { runTool } from '../../support/tools.js';

const ctx = useTestService();
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
    const haproxy = await startHaproxy(folder, [{ url: ctx.service.url, mqtt_port: 9 }]);
    await haproxy.waitForReady(1);
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
