import { createHash } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { type AddressInfo, connect, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import { issueKey } from '../../../src/objects/api-keys.js';
import { useTestService } from '../../support/expect-status.js';
import { logEvents } from '../../support/logged-events.js';
import { waitUntil } from '../../support/process.js';
import { runTool, startTool } from '../../support/tools.js';

const ctx = await useTestService();
let folder: string;
const keys = { read: '', write: '', other: '' };
const fleet_size = 2500;
const cutters: Server[] = [];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tools-'));
  const { db } = ctx.service;
  const issue = async (account: string, scope: 'read' | 'write') =>
    (await issueKey(db, { account, username: 'tool', scope }, 0)).key;
  keys.read = await issue('acme', 'read');
  keys.write = await issue('acme', 'write');
  keys.other = await issue('other', 'write');
  const id_group = await ctx.fixtures.group();
  const lines = Array.from({ length: fleet_size }, (_, number) => {
    const name = `Pump ${String(number).padStart(4, '0')}`;
    // so that compression cannot make the fleet small
    const noise = createHash('sha512').update(name).digest('hex');
    const description = number % 7 === 0 ? `=1+1\n"quoted", ${name} ${noise}` : noise;
    return JSON.stringify({
      resource: 'device',
      name,
      type: 'pump',
      id_group,
      description,
      id_developer: `${name}@acme`,
    });
  });
  const file = join(folder, 'fleet.ndjson');
  await writeFile(file, `${lines.join('\n')}\n`);
  expect(await runTool('import', [file], env(keys.write))).toMatchObject({
    code: 0,
    out: '',
    complaints: [`${fleet_size} created, 0 updated, 0 skipped, 0 failed`],
  });
});
afterAll(() => rm(folder, { recursive: true, force: true }));
afterEach(async () => {
  for (const cutter of cutters.splice(0)) await new Promise((resolve) => cutter.close(resolve));
});

const env = (API_KEY: string) => ({ PORT: new URL(ctx.service.url).port, API_KEY });

interface Cutter {
  url: string;
  cuts(): number;
  /** Bytes of the largest answer. */
  largest(): number;
}

/**
 * Forwards connections to the service. After so many bytes of answers it resets them, or forwards nothing more; null: never.
 * A reset may take bytes with it that have not been read.
 */
async function startCutter(limits: readonly (number | null)[], after: 'reset' | 'silence' = 'reset'): Promise<Cutter> {
  let [accepted, cut, largest] = [0, 0, 0];
  const server = createServer((client) => {
    const limit = limits[Math.min(accepted++, limits.length - 1)] ?? Number.POSITIVE_INFINITY;
    const service = connect(Number(new URL(ctx.service.url).port), '127.0.0.1');
    let passed = 0;
    for (const socket of [client, service]) {
      socket.on('error', () => undefined);
      socket.on('close', () => {
        client.destroy();
        service.destroy();
      });
    }
    client.pipe(service);
    service.on('data', (bytes) => {
      const isCut = passed > limit;
      const part = bytes.subarray(0, Math.max(0, limit - passed));
      passed += bytes.length;
      largest = Math.max(largest, passed);
      if (isCut || client.destroyed) return;
      const isLast = passed > limit && after === 'reset';
      if (isLast) cut++;
      client.write(part, () => isLast && client.resetAndDestroy());
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  cutters.push(server);
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, cuts: () => cut, largest: () => largest };
}

describe('export and import', () => {
  it.each(['csv', 'ndjson'])('moves a fleet to another account as %s', async (format) => {
    const outcomes: string[] = [];
    for (const type of ['project', 'service', 'group', 'device']) {
      const out = join(folder, `${type}.${format}`);
      expect(await runTool('export', [type, '--out', out], env(keys.read))).toMatchObject({ code: 0, out: '' });
      for (const dryRun of [['--dry-run'], []]) {
        const args = [out, '--resource', type, '--account', 'acme', ...dryRun];
        const { code, complaints } = await runTool('import', args, env(keys.other));
        expect([code, complaints.length]).toEqual([0, 1]);
        outcomes.push(`${type}: ${complaints[0]}`);
      }
    }
    const count = format === 'csv' ? `${fleet_size} created, 0 updated, 0` : `0 created, 0 updated, ${fleet_size}`;
    expect(outcomes.slice(-2)).toEqual([
      `device: ${count} skipped, 0 failed; nothing was changed`,
      `device: ${count} skipped, 0 failed`,
    ]);
    const totals = (await (await ctx.service.client({ account: 'other' })).get('/devices/?max=1')).body;
    expect(totals.total_documents).toBe(fleet_size);
    const { description } = (await (await ctx.service.client({ account: 'other' })).get('/devices/Pump%200007@other/'))
      .body;
    expect(description).toMatch(/^=1\+1\n"quoted", Pump 0007 [0-9a-f]{128}$/);
  });

  it.each(['csv', 'ndjson'] as const)('continues %s after lost connections', async (format) => {
    const whole = await runTool('export', ['devices', '--format', format], env(keys.read));
    const { url, cuts } = await startCutter([null, 40_000, 60_000, 1_000, 90_000, null]);
    const cut = await runTool('export', ['devices', '--format', format, '--url', url], env(keys.read));
    expect([cut.code, cut.complaints]).toEqual([0, [`${fleet_size} objects exported`]]);
    expect(cut.out === whole.out).toBe(true);
    expect(cuts()).toBe(4);
    expect(whole.out.startsWith(format === 'csv' ? 'id_developer,' : '{"id_developer":')).toBe(true);
  });

  it('continues an earlier run with --resume, as csv and ndjson', async () => {
    // at the same time, because each tries for 13 s to continue by itself
    await Promise.all(
      ['csv', 'ndjson'].map(async (format) => {
        const out = join(folder, `resumed.${format}`);
        const { url } = await startCutter([null, 60_000, 0]);
        const args = ['devices', 'max=2400', '--out', out];
        const broken = await runTool('export', [...args, '--url', url], env(keys.read));
        expect([broken.code, broken.complaints.join()]).toEqual([1, expect.stringContaining('--resume continues it')]);
        expect(await readdir(folder)).not.toContain(`resumed.${format}`);
        // as a kill -9 leaves it
        await writeFile(`${out}.partial`, '{"id_devel', { flag: 'a' });
        const resumed = await runTool('export', [...args, '--resume'], env(keys.read));
        expect([resumed.code, resumed.complaints]).toEqual([0, ['2400 objects exported']]);
        const whole = await runTool('export', ['devices', 'max=2400', '--format', format], env(keys.read));
        expect((await readFile(out, 'utf8')) === whole.out).toBe(true);
      }),
    );
  });

  describe('of streams and events', () => {
    const stream_count = 4000;
    const event_count = 8000;
    let device: string;

    beforeAll(async () => {
      device = await ctx.fixtures.device();
      const other = await ctx.fixtures.device();
      for (let from = 0; from < stream_count; from += 1000) {
        // many streams of one time
        const streams = Array.from({ length: 1000 }, (_, n) => ({
          at: 1_700_000_000.25 + Math.floor((from + n) / 7),
          data: {
            n: from + n,
            text: `=1+1\n"${createHash('sha256')
              .update(`${from + n}`)
              .digest('hex')}"`,
          },
        }));
        const target = from % 2000 === 0 ? device : other;
        expect((await ctx.api.post(`/devices/${encodeURIComponent(target)}/streams/`, streams)).body.code).toBe(2001);
      }
      const events = Array.from({ length: event_count }, () => ({
        data: { changed: [createHash('sha256').update(`${Math.random()}`).digest('hex')] },
      }));
      await logEvents(ctx.service, events);
    });

    const lists = [
      ['csv', 'streams', stream_count],
      ['ndjson', 'streams', stream_count],
      ['csv', 'streams of a device', stream_count / 2],
      ['ndjson', 'events', event_count],
    ] as const;
    const pathTo = (list: string) => (list === 'streams of a device' ? `devices/${device}/streams` : list);

    it('continues each list after lost connections', async () => {
      // at the same time: where a part held no whole object, the tool waits for up to 13 s in all
      const outcomes = await Promise.all(
        lists.map(async ([format, list, count]) => {
          const args = [pathTo(list), '--format', format];
          const whole = await runTool('export', args, env(keys.read));
          const { url, cuts } = await startCutter([null, 10_000, 15_000, 1_000, 8_000, null]);
          const cut = await runTool('export', [...args, '--url', url], env(keys.read));
          expect([cut.code, cut.complaints]).toEqual([0, [`${count} objects exported`]]);
          return [format, list, cut.out === whole.out, cuts()];
        }),
      );
      expect(outcomes).toEqual(lists.map(([format, list]) => [format, list, true, 4]));
    });

    it.each(lists)('continues the %s of %s after kill -9 with --resume', async (format, list, count) => {
      const out = join(folder, `killed-${list.length}.${format}`);
      const args = [pathTo(list), '--format', format, '--out', out];
      const uncut = await startCutter([null]);
      const whole = await runTool('export', [pathTo(list), '--format', format, '--url', uncut.url], env(keys.read));
      // a decoder returns little before most of the answer
      const { url } = await startCutter([null, Math.floor(0.8 * uncut.largest())], 'silence');
      const killed = startTool('export', [...args, '--url', url], env(keys.read));
      const received = async () => (await stat(`${out}.partial`).catch(() => undefined))?.size ?? 0;
      await waitUntil(async () => (await received()) > 0);
      killed.kill('SIGKILL');
      await killed.ended;
      const resumed = await runTool('export', [...args, '--resume'], env(keys.read));
      expect([resumed.code, resumed.complaints]).toEqual([0, [`${count} objects exported`]]);
      expect((await readFile(out, 'utf8')) === whole.out).toBe(true);
    });

    it('says which fields a resumable export needs', async () => {
      const out = join(folder, 'narrow.csv');
      await writeFile(`${out}.partial`, 'at\r\n1700000000.25\r\n');
      const { code, complaints } = await runTool(
        'export',
        ['streams', 'fields=at', '--out', out, '--resume'],
        env(keys.read),
      );
      expect([code, complaints.join()]).toEqual([
        1,
        expect.stringContaining('let fields contain device, at, id_developer'),
      ]);
    });
  });

  it('selects fields and objects, on standard output', async () => {
    const args = ['devices', 'name=Pump 0001', 'fields=id_developer,type', '--format', 'csv'];
    expect(await runTool('export', args, env(keys.read))).toMatchObject({
      code: 0,
      out: expect.stringMatching(/^id_developer,type\r?\nPump 0001@acme,pump\r?\n$/),
    });
  });

  it('names the address where the service refuses the list', async () => {
    const { code, complaints } = await runTool('export', ['devices', 'colour=red'], env(keys.read));
    expect([code, complaints]).toEqual([
      1,
      [expect.stringContaining(`export: GET ${ctx.service.url}/devices/?colour=red`)],
    ]);
  });

  it.each([
    ['max=0', 'max must be an integer of at least 1.'],
    ['max=-1', 'max must be an integer of at least 1.'],
    ['max=x', 'max must be an integer of at least 1.'],
    ['type=valve', 'type must be given once.'],
    ['format=csv', 'must be NAME=VALUE, such as type=pump.'],
  ])('refuses %s after type=pump', async (filter, reason) => {
    const { code, out, complaints } = await runTool('export', ['devices', 'type=pump', filter], env(keys.read));
    expect([code, out, complaints]).toEqual([1, '', [expect.stringContaining(reason)]]);
  });

  it('prints the lines that fail and exits with 1', async () => {
    const file = join(folder, 'faulty.csv');
    await writeFile(file, '\ufeffname;id_customer\r\nA;c\r\n;c\r\nB;c\r\n');
    const failing = await runTool('import', [file, '--resource', 'project'], env(keys.write));
    expect(failing).toEqual({
      code: 1,
      out: '{"line":3,"code":4003,"details":{"name":"is required"}}\n',
      complaints: ['2 created, 0 updated, 0 skipped, 1 failed'],
    });
    const args = [file, '--resource', 'project', '--on-conflict', 'fail', '--all'];
    const again = await runTool('import', args, env(keys.write));
    expect([again.code, again.out.match(/4003/g)?.length]).toEqual([1, 3]);
  });
});

describe('every tool', () => {
  it.each(['backup', 'restore', 'demo', 'simulate', 'import', 'export', 'keys'])('%s has --help', async (tool) => {
    const [{ code, out, complaints }, rejected] = await Promise.all([
      runTool(tool, ['--help']),
      runTool(tool, ['--nonsense']),
    ]);
    expect([code, complaints, out.startsWith(`Usage: ${tool}`)]).toEqual([0, [], true]);
    expect([rejected.code, rejected.complaints[0]]).toEqual([1, "error: unknown option '--nonsense'"]);
  });

  it.each([['demo'], ['simulate'], ['export', 'devices'], ['import', 'package.json']])(
    'names the options of the address and the key: %s',
    async (tool, ...args) => {
      const complaint = async (variables: NodeJS.ProcessEnv) => {
        const { code, out, complaints } = await runTool(tool, args, variables);
        expect([code, out]).toEqual([1, '']);
        return complaints.join('\n');
      };
      const hint = 'Does the service run there? Another address: --url, PUBLIC_URL, or HOST and PORT';
      const API_KEY = 'abcdefgh';
      expect(await complaint({ HOST: '0.0.0.0', PORT: '1', BASE_PATH: '/api', API_KEY })).toMatch(
        new RegExp(`^${tool}: http://127\\.0\\.0\\.1:1/api is unreachable: .*${hint.replaceAll('?', '\\?')}`),
      );
      expect(await complaint({ PUBLIC_URL: 'http://127.0.0.1:2', PORT: '1', API_KEY })).toContain('127.0.0.1:2 is');
      expect(await complaint({ PORT: 'http', API_KEY })).toContain(`${tool}: PORT must be a port`);
      expect(await complaint({ PORT: '1' })).toContain('no API key: use --key or API_KEY');
      expect(await complaint(env('wrong-key'))).toContain('the API key is rejected: unknown, revoked or expired (401)');
    },
  );
});
