import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { type IncomingMessage, request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import { type RunningService, useSandbox, waitUntil } from '../../support/process.js';

const { Double } = mongoose.mongo;

const sandbox = useSandbox();
let service: RunningService;
let db: mongoose.mongo.Db;
let path: string;

/** A page of 1,000 streams of 60 KB: about 60 MB as JSON. */
beforeAll(async () => {
  service = await sandbox.service();
  db = sandbox.database(await sandbox.embeddedUri());
  const id_project = await service.create('projects', { name: 'p', id_customer: 'c' });
  const id_service = await service.create('services', { name: 's', id_project });
  const id_group = await service.create('groups', { name: 'g', id_service });
  const device = await service.create('devices', { name: 'd', type: 't', id_group });
  path = `/devices/${encodeURIComponent(device)}/streams/`;
  expect((await service.send('POST', path, { data: { text: 'x'.repeat(60_000) }, at: 1 })).body.code).toBe(2001);
  const [stored] = await db.collection('streams').find().toArray();
  for (let from = 1; from < 1000; from += 100) {
    const copies = Array.from({ length: Math.min(100, 1000 - from) }, (_, i) => ({
      ...stored,
      _id: { ...stored?._id, at: new Double(from + i + 1) } as never,
    }));
    await db.collection('streams').insertMany(copies);
  }
});

/** Begins to fetch a page, without reading its body; again, as a client would, where the machine is too busy. */
async function open(query: string, headers: Record<string, string> = {}, list = path): Promise<IncomingMessage> {
  const url = `${service.url}${list}${query}`;
  const sent = request(url, { headers: { 'service.apikey': service.key, ...headers }, agent: false });
  sent.end();
  const [response] = await once(sent, 'response');
  if (response.statusCode !== 503) return response;
  response.destroy();
  return open(query, headers, list);
}

async function read(response: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

/** Resident memory of the service in MB: its highest value since the start, or the current one. */
async function memory_mb(field: 'VmHWM' | 'VmRSS'): Promise<number> {
  const status = await readFile(`/proc/${service.pid}/status`, 'utf8');
  return Number(new RegExp(`^${field}:\\s+([0-9]+) kB$`, 'm').exec(status)?.[1]) / 1024;
}

/** Cursors on a collection that are open in the database. */
async function countCursors(ns = /\.streams$/): Promise<number> {
  const stages = [{ $currentOp: { idleCursors: true, allUsers: true } }, { $match: { type: 'idleCursor', ns } }];
  return (await db.client.db('admin').aggregate(stages).toArray()).length;
}

it('sends pages with metadata, as JSON and XML, in bounded memory', async () => {
  const before_mb = await memory_mb('VmRSS');
  const [json, xml] = await Promise.all([
    open('?_m=1').then(read),
    open('?_m=1', { Accept: 'application/xml' }).then(read),
  ]);
  const { total_documents, metadata, result } = JSON.parse(json);
  expect([total_documents, result.length, result[0].at, result.at(-1).at]).toEqual([1000, 1000, 1, 1000]);
  expect(metadata).toEqual({
    parameters: { _m: 1 },
    returned: 1000,
    took_ms: expect.any(Number),
    at_first: 1,
    at_last: 1000,
  });
  expect(xml.length).toBeGreaterThan(60_000_000);
  expect(xml.indexOf('<at_last>1000</at_last>')).toBeLessThan(1000);
  expect(xml.endsWith('</stream></result></response>')).toBe(true);
  expect(await memory_mb('VmHWM')).toBeLessThan(before_mb + 120);
});

it('holds little of pages that nobody reads, and closes their cursors when the clients leave', async () => {
  const before_mb = await memory_mb('VmRSS');
  const unread = await Promise.all(Array.from({ length: 10 }, (_, i) => open(i % 2 === 0 ? '?_m=1' : '')));
  await waitUntil(async () => (await countCursors()) === 10);
  await sleep(500);
  expect(await memory_mb('VmRSS')).toBeLessThan(before_mb + 250);
  for (const response of unread) response.destroy();
  await waitUntil(async () => (await countCursors()) === 0);
});

it('reads large objects while the client takes them, once it has listed such', async () => {
  const [stored] = await db.collection('devices').find().toArray();
  const properties = { text: 'x'.repeat(59_000) };
  const copies = Array.from({ length: 100 }, (_, i) => {
    return { ...stored, _id: new mongoose.mongo.UUID(), id_developer: `d${i}`, name: `d${i}`, properties } as never;
  });
  await db.collection('devices').insertMany(copies);
  const list = '/devices/?max=1000';
  for (const _ of [1, 2]) expect(JSON.parse(await open('', {}, list).then(read)).result).toHaveLength(101);
  const unread = await open('', {}, list);
  await waitUntil(async () => (await countCursors(/\.devices$/)) === 1);
  unread.destroy();
  await waitUntil(async () => (await countCursors(/\.devices$/)) === 0);
});

it('closes all cursors of a series when the client leaves', async () => {
  const query = '?fields=text&aggregate=first,last&every=1&at_from=0&at_to=1000';
  const response = await open(query, {}, path.replace('streams', 'series'));
  await waitUntil(async () => (await countCursors()) > 1);
  response.destroy();
  await waitUntil(async () => (await countCursors()) === 0);
});

it('exports in memory that does not depend on the size of the list', async () => {
  const before_mb = await memory_mb('VmRSS');
  const ends = await Promise.all(
    ['csv', 'ndjson', 'csv', 'ndjson'].map(async (format) => {
      let length = 0;
      let last = Buffer.alloc(0);
      for await (const chunk of await open(`?format=${format}&max=100000`)) {
        length += chunk.length;
        last = Buffer.concat([last, chunk]).subarray(-20);
      }
      expect(length).toBeGreaterThan(60_000_000);
      return last.toString().slice(-2);
    }),
  );
  expect(ends).toEqual(['\r\n', '}\n', '\r\n', '}\n']);
  expect(await memory_mb('VmHWM')).toBeLessThan(before_mb + 150);
  await waitUntil(async () => (await countCursors()) === 0);
});
