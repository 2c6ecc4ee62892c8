import { setTimeout as sleep } from 'node:timers/promises';
import { openConnections } from '../support/instance.js';
import { waitUntil } from '../support/service-process.js';
import { type Attack, assert, formatRequest, measureSlowest, type Target } from './target.js';
import { type StandIn, startStandIn } from './webdav-stand-in.js';

const path = '/external/webdav/user/mallory/';

/** Attacks by a linked storage and on its links (reference/file-storage.md#listing, reference/file-storage.md#links). */
export const storageAttacks: readonly Attack[] = [
  { name: 'storage: nested XML of 60 KB', run: (target) => answerXml(target, nest(60_000)) },
  { name: 'storage: an element with 5,000 attributes', run: (target) => answerXml(target, addAttributes(5000)) },
  { name: 'storage: an element name of 1 MB', run: (target) => answerXml(target, `<${'n'.repeat(1_000_000)}/>`) },
  { name: 'storage: 300 link requests that are given up', run: giveUpLinks },
  { name: 'storage: 300 linkings that are given up', run: giveUpLinkings },
  { name: 'storage: a listing of 100,001 files', run: listTooMany },
  { name: 'storage: 20 listings of 20,000 files at once', run: listAtOnce },
];

function nest(bytes: number): string {
  const levels = Math.floor(bytes / 7);
  return '<a>'.repeat(levels) + '</a>'.repeat(levels);
}

function addAttributes(count: number): string {
  return `<a ${Array.from({ length: count }, (_, n) => `a${n}="${n}"`).join(' ')}/>`;
}

/** Links a stand-in, runs `work` and unlinks it. */
async function withStandIn(target: Target, work: (standIn: StandIn) => Promise<void>): Promise<void> {
  const standIn = await startStandIn();
  try {
    await link(target, standIn);
    await work(standIn);
  } finally {
    await target.send('DELETE', path).catch(() => undefined);
    await standIn.stop();
  }
}

async function link(target: Target, { url }: StandIn): Promise<void> {
  const { code, text } = await target.send('PUT', path, { url, username: 'u', password: 'p' });
  assert(code === 2001 || code === 2005, `the storage cannot be linked: ${text}`);
}

function answerXml(target: Target, xml: string): Promise<void> {
  return withStandIn(target, async (standIn) => {
    standIn.files = 0;
    standIn.extra = xml;
    const codes: number[] = [];
    const slowest_ms = await measureSlowest(target, async () => {
      for (let round = 0; round < 3; round++) codes.push((await target.send('GET', `${path}?op=all`)).code);
    });
    standIn.extra = '';
    const { status } = await target.send('GET', `${path}?op=all`);
    assert(
      codes.every((code) => code === 5032 || code === 0),
      `a listing answers ${codes} instead of 5032`,
    );
    assert(slowest_ms < target.calm_limit_ms, `another account waited ${slowest_ms} ms`);
    assert(status === 200, `an ordinary listing answers ${status} afterwards`);
  });
}

function giveUpLinks(target: Target): Promise<void> {
  return withStandIn(target, async (standIn) => {
    standIn.files = 1;
    const { text } = await target.send('GET', `${path}?op=all`);
    const { pathname } = new URL(JSON.parse(text).result[0].url);
    standIn.isStalled = true;
    const clients = await openConnections(target.port, 300);
    for (const { socket } of clients) socket.write(formatRequest(target, pathname));
    await sleep(1000);
    for (const { socket } of clients) socket.resetAndDestroy();
    await sleep(500);
    standIn.isStalled = false;
    const isOpen = async () => (await target.send('GET', pathname)).status === 200;
    await waitUntil(isOpen, 6000).catch(() => {
      throw new Error('links do not open afterwards');
    });
  });
}

function giveUpLinkings(target: Target): Promise<void> {
  return withStandIn(target, async (standIn) => {
    standIn.isStalled = true;
    const body = JSON.stringify({ url: standIn.url, username: 'u', password: 'p' });
    for (let round = 0; round < 5; round++) {
      const clients = await openConnections(target.port, 60);
      for (const { socket } of clients) socket.write(formatRequest(target, path, '', 'PUT', body));
      await sleep(300);
      for (const { socket } of clients) socket.resetAndDestroy();
    }
    standIn.isStalled = false;
    const isLinked = async () => (await target.send('PUT', path, body)).code === 2005;
    await waitUntil(isLinked, 10_000).catch(() => {
      throw new Error('storage cannot be linked afterwards');
    });
  });
}

function listTooMany(target: Target): Promise<void> {
  return withStandIn(target, async (standIn) => {
    standIn.files = 100_001;
    let code = 0;
    const slowest_ms = await measureSlowest(target, async () => {
      code = (await target.send('GET', `${path}?op=newest`)).code;
    });
    assert(code === 5032, `a listing of 100,001 files answers ${code || 200} instead of 5032`);
    assert(slowest_ms < target.calm_limit_ms, `another account waited ${slowest_ms} ms`);
  });
}

function listAtOnce(target: Target): Promise<void> {
  return withStandIn(target, async (standIn) => {
    standIn.files = 20_000;
    const codes = new Set<number>();
    const slowest_ms = await measureSlowest(target, async () => {
      const replies = await Promise.all(Array.from({ length: 20 }, () => target.send('GET', `${path}?op=newest`)));
      for (const { status, code } of replies) codes.add(status === 200 ? 200 : code);
    });
    const unexpected = [...codes].filter((code) => ![200, 5032, 5033].includes(code));
    assert(unexpected.length === 0, `a listing answers ${unexpected}`);
    assert(slowest_ms < target.calm_limit_ms, `another account waited ${slowest_ms} ms`);
    standIn.files = 1;
    const { status } = await target.send('GET', `${path}?op=newest`);
    assert(status === 200, `an ordinary listing answers ${status} afterwards`);
  });
}
