import { execFile } from 'node:child_process';
import { mkdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { Webhook } from 'standardwebhooks';
import { openSandbox, type RunningService, type Sandbox } from '../../support/process.js';
import { type Receiver, startReceiver } from '../../support/receiver.js';
import { runTool } from '../../support/tools.js';

const run = promisify(execFile);
const storage = '/external/local/user/alice/';

let sandbox: Sandbox;
let key: string;
let first: string;
let receiver: Receiver;
/** The secret of a webhook that sends to the receiver. */
let signing: Webhook;
const keyFile = () => join(sandbox.folder, 'data', 'secret.key');

async function start(): Promise<RunningService> {
  return sandbox.service({
    FILESTORE_LOCAL_ROOT: join(sandbox.folder, 'files'),
    WEBHOOK_ALLOW_NETS: '127.0.0.0/8',
    ...(key && { BOOTSTRAP_API_KEY: key }),
  });
}
const list = async (service: RunningService) => (await service.send('GET', `${storage}?op=all`)).body;

async function stop(service: RunningService): Promise<void> {
  service.kill('SIGTERM');
  expect(await service.ended).toBe(0);
}

beforeAll(async () => {
  sandbox = await openSandbox();
  await mkdir(join(sandbox.folder, 'files', 'demo', 'reports'), { recursive: true });
  await writeFile(join(sandbox.folder, 'files', 'demo', 'reports', 'a.txt'), 'a');
  const service = await start();
  key = service.key;
  expect((await service.send('PUT', storage, { path: 'reports' })).body.code).toBe(2001);
  receiver = await startReceiver();
  const created = await service.send('POST', '/webhooks/', { name: 'w', url: receiver.url, types: ['log.'] });
  signing = new Webhook(created.body.details.secret);
  await stop(service);
  first = await readFile(keyFile(), 'utf8');
});
afterAll(async () => {
  await receiver?.close();
  await sandbox.close();
});

/** Sends a test event, and returns the code of the answer or the type of the event that the receiver has verified. */
async function testWebhook(service: RunningService): Promise<unknown> {
  const { body } = await service.send('POST', '/webhooks/w@demo/test/');
  const last = receiver.received.splice(0).at(-1);
  if (last === undefined) return body.code;
  const verified = signing.verify(last.body, last.headers as Record<string, string>);
  return (verified as { type: string }).type;
}

it('reports a changed SECRET_KEY, and loses nothing', async () => {
  await writeFile(keyFile(), 'quite another key\n');
  const changed = await start();
  expect(await list(changed)).toMatchObject({
    code: 5032,
    details: { message: expect.stringContaining('SECRET_KEY') },
  });
  expect(changed.err()).toMatch(/"count":1.*linked storages are encrypted under another SECRET_KEY/);
  expect(changed.err()).toMatch(/"count":1.*secrets of webhooks are encrypted under another SECRET_KEY/);
  expect(await testWebhook(changed)).toBe(5032);
  await stop(changed);
  await writeFile(keyFile(), first);
  const restored = await start();
  // PORT is 0
  const url = expect.stringContaining(`${restored.url}/external/files/`);
  expect(await list(restored)).toMatchObject({ total_documents: 1, result: [{ path: 'a.txt', url }] });
  expect(await testWebhook(restored)).toBe('webhook.test');

  // on the running database; the service keeps the key of its start until it is restarted
  const rotate = () =>
    run(process.execPath, ['dist/src/cli/keys.js', 'rotate-secret'], {
      env: { ...process.env, DATA_DIR: join(sandbox.folder, 'data') },
    });
  const { stdout, stderr } = await rotate();
  expect([stdout, stderr]).toEqual([
    '',
    expect.stringMatching(/^1 linked storages and 1 webhooks are encrypted under the new key/),
  ]);
  const second = await readFile(keyFile(), 'utf8');
  expect(second).not.toBe(first);
  expect((await stat(keyFile())).mode & 0o777).toBe(0o600);
  expect(await list(restored)).toMatchObject({
    code: 5032,
    details: { message: expect.stringContaining('SECRET_KEY') },
  });
  await stop(restored);
  const rotated = await start();
  expect(await list(rotated)).toMatchObject({ total_documents: 1, result: [{ path: 'a.txt' }] });
  expect(await testWebhook(rotated)).toBe('webhook.test');
  expect(rotated.err()).not.toMatch(/another SECRET_KEY/);
  await stop(rotated);
});

it('refuses a new key that is too short', async () => {
  const env = { DATA_DIR: join(sandbox.folder, 'data'), NEW_SECRET_KEY: 'short' };
  const before = await readFile(keyFile(), 'utf8');
  expect(await runTool('keys', ['rotate-secret'], env)).toEqual({
    code: 1,
    out: '',
    complaints: ['NEW_SECRET_KEY must be at least 16 characters'],
  });
  expect(await readFile(keyFile(), 'utf8')).toBe(before);
});

it('takes an empty new key for none', async () => {
  const before = await readFile(keyFile(), 'utf8');
  const env = { DATA_DIR: join(sandbox.folder, 'data'), NEW_SECRET_KEY: '' };
  expect((await runTool('keys', ['rotate-secret'], env)).code).toBe(0);
  const generated = (await readFile(keyFile(), 'utf8')).trim();
  expect(generated).toMatch(/^[\w-]{43}$/);
  expect(generated).not.toBe(before.trim());
});

it('never loses a key during the rotation', async () => {
  // the key of the settings is missing: the rotation changes nothing
  const present = await readFile(keyFile(), 'utf8');
  await writeFile(keyFile(), 'a third key, of nothing\n');
  const env = { ...process.env, DATA_DIR: join(sandbox.folder, 'data') };
  await expect(run(process.execPath, ['dist/src/cli/keys.js', 'rotate-secret'], { env })).rejects.toMatchObject({
    stderr: expect.stringContaining('open with neither key'),
  });
  expect(await readFile(keyFile(), 'utf8')).toBe('a third key, of nothing\n');
  await writeFile(keyFile(), present);
  // an interrupted rotation continues with the key that it had generated
  const next = await readFile(`${keyFile()}.next`, 'utf8');
  await run(process.execPath, ['dist/src/cli/keys.js', 'rotate-secret'], { env });
  expect(await readFile(keyFile(), 'utf8')).toBe(next);
  const service = await start();
  expect(await list(service)).toMatchObject({ total_documents: 1 });
  await stop(service);
});
