import { chmod, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { deflateRawSync } from 'node:zlib';
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { createBackupFile, parseDocuments } from '../../src/backup/file.js';

let folder: string;
let path: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'backup-'));
  path = join(folder, 'fleet.backup');
});
afterEach(() => rm(folder, { recursive: true }));

const modeOf = async (file: string) => (await stat(file)).mode & 0o777;

it('is readable by its user alone, whatever was prepared beside it', async () => {
  const victim = join(folder, 'victim');
  await writeFile(victim, 'untouched');
  await symlink(victim, `${path}.partial`);
  const file = await createBackupFile(path);
  const [draft = ''] = (await readdir(folder)).filter(
    (name) => /\.partial$/.test(name) && name !== 'fleet.backup.partial',
  );
  expect(await modeOf(join(folder, draft))).toBe(0o600);
  await file.frame('header', Buffer.from('{}'));
  await file.finish();
  expect(await readFile(victim, 'utf8')).toBe('untouched');
  expect(await modeOf(path)).toBe(0o600);
});

it('replaces a backup of a stranger instead of writing into it', async () => {
  await writeFile(path, 'old');
  await chmod(path, 0o666);
  const file = await createBackupFile(path);
  await file.frame('header', Buffer.from('{}'));
  await file.finish();
  expect(await modeOf(path)).toBe(0o600);
});

it('leaves nothing behind when it is given up', async () => {
  await (await createBackupFile(path)).abort();
  expect(await readdir(folder)).toEqual([]);
});

it.each([
  ['no length', [5, 0, 0]],
  ['length 0', [0, 0, 0, 0, 0]],
  ['a negative length', [0xff, 0xff, 0xff, 0xff, 0]],
  ['more than there is', [6, 0, 0, 0, 0]],
])('refuses a document of %s', async (_what, bytes) => {
  const content = deflateRawSync(Buffer.from([5, 0, 0, 0, 0, ...bytes]));
  await expect(parseDocuments({ kind: 'documents', content })).rejects.toThrow('the backup has a damaged document');
});
