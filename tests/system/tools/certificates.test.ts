import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { createCertificate } from '../../support/certificates.js';
import { itWithMosquitto } from '../../support/mosquitto.js';
import { findFreePort, openSandbox, type RunningService, type Sandbox, waitUntil } from '../../support/process.js';

/** The commands of docs/operations.md#tls, as they are written there. */
const section = /\n## TLS\n([\s\S]*?)\n## /.exec(readFileSync('docs/operations.md', 'utf8'))?.[1] ?? '';
const [own = '', curl = '', renewal = '', authority = '', publish = ''] = [
  ...section.matchAll(/```sh\n([\s\S]*?)```/g),
].map(([, commands = '']) => commands);
let sandbox: Sandbox;
let service: RunningService;
let ports: Record<'PORT' | 'MQTTS_PORT', string>;

beforeAll(async () => {
  sandbox = await openSandbox();
  ports = { PORT: String(await findFreePort()), MQTTS_PORT: String(await findFreePort()) };
});
afterAll(() => sandbox.close());

const run = (commands: string, path = '') =>
  execFileSync('sh', ['-ec', commands], {
    cwd: sandbox.folder,
    env: { ...process.env, ...ports, PATH: `${path}${process.env.PATH}` },
    encoding: 'utf8',
    stdio: 'pipe',
  });

/** Starts the service with the variables that the commands set, whose files are in the folder of the sandbox. */
async function start(commands: string): Promise<void> {
  const set = [...commands.matchAll(/(TLS_\w+)=(\S+)/g)].map(([, name = '', file = '']) => [
    name,
    join(sandbox.folder, file),
  ]);
  const BOOTSTRAP_API_KEY = 'k'.repeat(16);
  service = await sandbox.service({ ...ports, ...Object.fromEntries(set), BOOTSTRAP_API_KEY });
}

async function readName(): Promise<unknown> {
  const socket = connectTls({ port: Number(ports.PORT), host: '127.0.0.1', rejectUnauthorized: false });
  await new Promise((resolve) => socket.once('secureConnect', resolve));
  const { subject } = socket.getPeerCertificate();
  socket.destroy();
  return subject.CN;
}

it('has at most ten lines for each', () => {
  const lines = [own, renewal, authority].map((commands) => commands.trim().split('\n').length);
  expect(lines.map((count) => count > 2 && count <= 10)).toEqual([true, true, true]);
});

it('makes a certificate that curl accepts', async () => {
  run(own);
  await start(own);
  expect(JSON.parse(run(curl))).toMatchObject({ status: expect.any(String) });
});

// certbot and systemctl stand for themselves: one makes a certificate and calls the hook, the other sends the signal
it('replaces it by one of certbot, which the running service uses', async () => {
  const bin = join(sandbox.folder, 'bin');
  const lineage = join(sandbox.folder, 'live');
  for (const folder of [bin, lineage]) mkdirSync(folder);
  const { cert, key } = createCertificate(sandbox.folder, { name: 'renewed' });
  writeFileSync(join(lineage, 'fullchain.pem'), cert);
  writeFileSync(join(lineage, 'privkey.pem'), key);
  const scripts = {
    certbot: `while [ "$1" != --deploy-hook ]; do shift; done\nRENEWED_LINEAGE='${lineage}' sh -c "$2"`,
    systemctl: `[ "$*" = "kill --signal=HUP --kill-whom=main device-platform" ] && kill -HUP ${service.pid}`,
  };
  for (const [name, script] of Object.entries(scripts)) {
    writeFileSync(join(bin, name), `#!/bin/sh\n${script}\n`);
    chmodSync(join(bin, name), 0o755);
  }
  expect(await readName()).toBe('devices.example.com');
  run(renewal, `${bin}:`);
  await waitUntil(async () => (await readName()) === 'renewed');
});

itWithMosquitto('makes an authority, and a certificate with which a device sends', async () => {
  await service.stop();
  run(own);
  run(authority);
  await start(own + authority);
  const id_project = await service.create('projects', { name: 'p', id_customer: 'c' });
  const id_service = await service.create('services', { name: 's', id_project });
  const id_group = await service.create('groups', { name: 'g', id_service });
  expect(await service.create('devices', { name: 'pump-1', type: 'pump', id_group })).toBe('pump-1@demo');
  run(publish);
  const { body } = await service.send('GET', '/devices/pump-1%40demo/streams/');
  expect(body.result.map(({ data }: { data: unknown }) => data)).toEqual([{ temperature: 21.5 }]);
});
