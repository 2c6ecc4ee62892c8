import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from '@jest/globals';
import { readPlace } from '../../src/mqtt/sessions/peers.js';

const folder = mkdtempSync(join(tmpdir(), 'place-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** Creates a /proc as a process sees it that runs on one host, in one namespace of process ids. */
function createProc(name: string, boot_id: string, namespace: string): string {
  const proc = join(folder, name);
  mkdirSync(join(proc, 'sys/kernel/random'), { recursive: true });
  mkdirSync(join(proc, 'self/ns'), { recursive: true });
  writeFileSync(join(proc, 'sys/kernel/random/boot_id'), `${boot_id}\n`);
  symlinkSync(namespace, join(proc, 'self/ns/pid'));
  return proc;
}

// all processes of this test have one host name, as clones of a machine do
it('tells hosts of one name and containers of one host apart, and recognises processes beside each other', () => {
  const place = readPlace(createProc('a', 'boot 1', 'pid:[4026531836]'));
  expect(readPlace(createProc('beside', 'boot 1', 'pid:[4026531836]'))).toBe(place);
  expect(readPlace(createProc('other host', 'boot 2', 'pid:[4026531836]'))).not.toBe(place);
  expect(readPlace(createProc('container', 'boot 1', 'pid:[4026532201]'))).not.toBe(place);
});

it('compares no process ids where there is no /proc', () => {
  expect(readPlace(join(folder, 'none'))).not.toBe(readPlace(join(folder, 'none')));
});
