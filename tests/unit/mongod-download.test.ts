import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { access, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { type Archive, chooseArchive, downloadArchive } from '../../src/mongod/archive.js';
import { findMongod } from '../../src/mongod/binary.js';

const run = promisify(execFile);
const program = '#!/bin/sh\necho "db version v8.2.6"\n';

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

/** An archive as MongoDB packs it, with other files before its mongod. */
async function pack(content = program): Promise<{ bytes: Buffer; archive: Archive }> {
  const root = join(folder, 'packed', 'mongodb-linux-8.2.6');
  await mkdir(join(root, 'bin'), { recursive: true });
  await writeFile(join(root, 'README'), 'r'.repeat(100_000));
  await writeFile(join(root, 'bin', 'install_compass'), 'other');
  await writeFile(join(root, 'bin', 'mongod'), content, { mode: 0o755 });
  const names = ['README', 'bin/install_compass', 'bin/mongod'].map((name) => `mongodb-linux-8.2.6/${name}`);
  await run('tar', ['-czf', join(folder, 'packed.tgz'), '-C', join(folder, 'packed'), ...names]);
  const bytes = await readFile(join(folder, 'packed.tgz'));
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  return { bytes, archive: { path: 'linux/packed.tgz', sha256 } };
}

const target = () => join(folder, 'cache', 'mongod-8.2.6', 'mongod');
const fetchFrom = (url: string, archive: Archive, env: Record<string, string> = {}) =>
  downloadArchive({ MONGOMS_DOWNLOAD_MIRROR: url, ...env }, archive, target(), () => undefined);
const leftovers = () => readdir(join(folder, 'cache')).catch(() => []);

describe('the archive of MongoDB', () => {
  it('is extracted if its SHA-256 is the pinned one', async () => {
    const { bytes, archive } = await pack(`${program}#${'x'.repeat(1_000_000)}`);
    const requests: (string | undefined)[] = [];
    const url = await serve((request, response) => {
      requests.push(request.url);
      response.end(bytes);
    });
    expect(await fetchFrom(`${url}/mirror`, archive)).toBe(target());
    expect(requests).toEqual(['/mirror/linux/packed.tgz']);
    expect((await readFile(target(), 'utf8')).length).toBe(program.length + 1_000_001);
    expect((await stat(target())).mode & 0o777).toBe(0o755);
    expect(await leftovers()).toEqual(['mongod-8.2.6']);
    // the next start finds it
    const env = { HOME: folder, PATH: '/bin', XDG_CACHE_HOME: join(folder, 'none') };
    const found = await findMongod({ env, print: () => undefined, cacheDir: join(folder, 'cache') });
    expect(found).toEqual({ path: target(), version: '8.2.6' });
  });

  it('is refused, and leaves nothing behind, if a byte differs', async () => {
    const { bytes, archive } = await pack();
    for (const at of [0, 100, bytes.length - 1]) {
      const changed = Buffer.from(bytes);
      changed[at] = (changed[at] ?? 0) ^ 1;
      const url = await serve((_request, response) => response.end(changed));
      await expect(fetchFrom(url, archive)).rejects.toThrow('SHA-256');
    }
    const short = await serve((_request, response) => response.end(bytes.subarray(0, -1)));
    await expect(fetchFrom(short, archive)).rejects.toThrow('SHA-256');
    expect(await leftovers()).toEqual([]);
  });

  it('is refused by findMongod too, which then tries the other ways', async () => {
    const { bytes } = await pack();
    const url = await serve((_request, response) => response.end(bytes));
    const env = { HOME: folder, PATH: folder, MONGOMS_DOWNLOAD_MIRROR: url };
    const message = await findMongod({ env, print: () => undefined }).catch((error: Error) => error.message);
    expect(message).toMatch(/allow the download from MongoDB's server: (the archive is not the expected|no verified)/);
    expect(message).toMatch(/package index: /);
    await expect(access(target())).rejects.toThrow('ENOENT');
  });

  it('is not downloaded where that is forbidden, and a failing server is named', async () => {
    const { archive } = await pack();
    await expect(fetchFrom('http://127.0.0.1:1', archive)).rejects.toThrow('ECONNREFUSED');
    const url = await serve((_request, response) => response.writeHead(403).end());
    await expect(fetchFrom(url, archive)).rejects.toThrow(`${url} answered with status 403`);
    await expect(fetchFrom(url, archive, { MONGOMS_RUNTIME_DOWNLOAD: 'false' })).rejects.toThrow('switched off');
    await expect(fetchFrom('no url', archive)).rejects.toThrow('Invalid URL');
    const loop = await serve((request, response) => response.writeHead(302, { Location: request.url }).end());
    await expect(fetchFrom(loop, archive)).rejects.toThrow('redirects too often');
  });

  it('may come by redirect, or through a proxy', async () => {
    const { bytes, archive } = await pack();
    const origin = await serve((_request, response) => response.end(bytes));
    const guide = await serve((_request, response) => response.writeHead(307, { Location: `${origin}/x` }).end());
    expect(await fetchFrom(guide, archive)).toBe(target());
    await rm(target());
    const seen: (string | undefined)[] = [];
    const proxy = await serve((request, response) => {
      seen.push(request.url, request.headers['proxy-authorization']);
      response.end(bytes);
    });
    const http_proxy = proxy.replace('//', '//user:p%40ss@');
    expect(await fetchFrom('http://storage.invalid', archive, { http_proxy })).toBe(target());
    expect(seen).toEqual([
      'http://storage.invalid/linux/packed.tgz',
      `Basic ${Buffer.from('user:p@ss').toString('base64')}`,
    ]);
  });

  it('uses a tunnel through the proxy for https', async () => {
    const { archive } = await pack();
    const connects: (string | undefined)[] = [];
    const sent: Buffer[] = [];
    const proxy = createServer().listen(0, '127.0.0.1');
    await once(proxy, 'listening');
    proxy.on('connect', (request, socket) => {
      connects.push(request.url);
      closers.push(() => socket.destroy());
      socket
        .on('error', () => undefined)
        .on('data', (data: Buffer) => {
          sent.push(data);
          socket.end('no TLS here');
        });
      socket.write('HTTP/1.1 200 Connected\r\n\r\n');
    });
    closers.push(() => proxy.close());
    const https_proxy = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
    await expect(fetchFrom('https://storage.invalid', archive, { https_proxy })).rejects.toThrow(/SSL|TLS|packet/i);
    expect(connects).toEqual(['storage.invalid:443']);
    // the type of a TLS handshake: nothing is sent in the clear
    expect(sent[0]?.[0]).toBe(0x16);
  });
});

it('knows an archive for these platforms, and refuses all others with the way out', () => {
  const known = [
    { platform: 'linux', arch: 'x64', glibc: '2.39' },
    { platform: 'linux', arch: 'x64', glibc: '2.36' },
    { platform: 'linux', arch: 'arm64', glibc: '2.41' },
    { platform: 'darwin', arch: 'x64', glibc: undefined },
    { platform: 'darwin', arch: 'arm64', glibc: undefined },
  ].map(chooseArchive);
  expect(known.map(({ path }) => path)).toEqual([
    'linux/mongodb-linux-x86_64-ubuntu2404-8.2.6.tgz',
    'linux/mongodb-linux-x86_64-debian12-8.2.6.tgz',
    'linux/mongodb-linux-aarch64-ubuntu2404-8.2.6.tgz',
    'osx/mongodb-macos-x86_64-8.2.6.tgz',
    'osx/mongodb-macos-arm64-8.2.6.tgz',
  ]);
  expect(new Set(known.map(({ sha256 }) => sha256)).size).toBe(5);
  for (const { sha256 } of known) expect(sha256).toMatch(/^[0-9a-f]{64}$/);
  for (const other of [
    { platform: 'linux', arch: 'x64', glibc: undefined },
    { platform: 'linux', arch: 'x64', glibc: '2.35' },
    { platform: 'linux', arch: 'arm64', glibc: '2.36' },
    { platform: 'linux', arch: 'riscv64', glibc: '2.41' },
    { platform: 'win32', arch: 'x64', glibc: undefined },
  ])
    expect(() => chooseArchive(other)).toThrow(/no verified archive .* set MONGODB_URI or MONGOMS_SYSTEM_BINARY/);
});

it('runs no install scripts of packages in the Docker build', async () => {
  const installs = (await readFile('Dockerfile', 'utf8')).match(/npm (?:ci|install)\b[^&\n]*/g) ?? [];
  expect(installs).toHaveLength(2);
  for (const install of installs) expect(install).toContain('--ignore-scripts');
});
