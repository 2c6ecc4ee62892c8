import { randomUUID } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import { buildEventId, logEvents } from '../support/logged-events.js';
import { type Api, startTestService, type TestService } from '../support/service.js';
import { rowsOf } from '../support/sharding.js';

type BsonDocument = mongoose.mongo.BSON.Document;
// biome-ignore lint/suspicious/noExplicitAny: the document is looked into at many depths
type Json = any;

/** Shard keys that docs/sharding.md names, and the collections without one. */
const keys = new Map(
  rowsOf('collection').map(([name = '', key = '']) => [name, key === 'none' ? [] : key.split(', ')]),
);

/** Fields that a filter constrains at its top level: to values, or to ranges. */
function constraintsOf(filter: BsonDocument): Map<string, 'values' | 'range'> {
  const found = new Map<string, 'values' | 'range'>();
  for (const [path, condition] of Object.entries(filter)) {
    if (path === '$and') for (const inner of condition) for (const entry of constraintsOf(inner)) found.set(...entry);
    else if (!path.startsWith('$')) found.set(path, isValue(condition) ? 'values' : 'range');
  }
  return found;
}

function isValue(condition: unknown): boolean {
  if (typeof condition !== 'object' || condition === null || '_bsontype' in condition) return true;
  const [operator = ''] = Object.keys(condition);
  return operator === '$eq' || operator === '$in' || !operator.startsWith('$');
}

/** The shards that mongos sends a command to: it needs values of the first fields of the shard key. */
function targetOf(filter: BsonDocument, key: readonly string[]): string {
  const constraints = constraintsOf(filter);
  const free = key.findIndex((path) => constraints.get(path) !== 'values');
  if (free < 0) return 'one';
  return free === 0 ? 'all' : `those of the ${key[free - 1]}`;
}

interface Recorded {
  collection: string;
  command: string;
  filter: BsonDocument;
}

/** Reads collection, command and filter of an entry of MongoDB's profiler. */
function readEntry({ ns, op, command }: BsonDocument): Recorded {
  const collection = ns.slice(ns.indexOf('.') + 1);
  const record = (name: string, filter: BsonDocument) => ({ collection, command: name, filter: filter ?? {} });
  if (op === 'update' || op === 'remove') return record(op === 'remove' ? 'delete' : op, command.q);
  if (op === 'insert') return record(op, {});
  if ('find' in command) return record('find', command.filter);
  if ('findAndModify' in command || 'findandmodify' in command) return record('findAndModify', command.query);
  if ('distinct' in command || 'count' in command) return record('find', command.query);
  const [first = {}] = command.pipeline ?? [];
  return record('$changeStream' in first ? 'change stream' : 'aggregate', first.$match ?? {});
}

const describeFilter = ({ filter }: Recorded, key: readonly string[]): string => {
  const paths = [...constraintsOf(filter).keys()];
  const shown = [...key, '_id'].filter((path, index, all) => paths.includes(path) && all.indexOf(path) === index);
  const hasMore = paths.some((path) => !shown.includes(path));
  return [...shown, ...(hasMore ? ['…'] : [])].join(', ') || 'none';
};

let service: TestService;
let folder: string;
let connection: mongoose.Connection;
let db: mongoose.mongo.Db;
const recorded: Recorded[] = [];
const executed: string[] = [];

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'sharding-'));
  mkdirSync(join(folder, 'demo'));
  writeFileSync(join(folder, 'demo/march.csv'), 'a;b\n');
  const uri = new URL(process.env.TEST_MONGODB_URI ?? '');
  uri.pathname = `/test-${randomUUID()}`;
  service = await startTestService({ uri: uri.href, filestore_local_root: folder });
  while (!(await service.db.isReady())) await new Promise((resolve) => setTimeout(resolve, 20));
  const api = await service.client({ account: 'demo', username: 'admin' });
  await logEvents(service, [{ id_group: 'Hall 1@demo' }], { account: 'demo' });
  connection = await mongoose.createConnection(uri.href).asPromise();
  db = connection.getClient().db(uri.pathname.slice(1));
  await db.createCollection('system.profile', { capped: true, size: 64 * 1024 * 1024 });
  await db.command({ profile: 2 });
  await executeAll(api);
  await db.command({ profile: 0 });
  const entries = await db
    .collection('system.profile')
    .find({ op: { $in: ['query', 'command', 'update', 'remove'] } })
    .toArray();
  for (const entry of entries) {
    const { ns, command } = entry;
    if (!/\.(?:\$cmd.*|system\..*)$/.test(ns) && !('explain' in command)) recorded.push(readEntry(entry));
  }
});
afterAll(async () => {
  await connection?.close();
  await service?.stop();
  rmSync(folder, { recursive: true });
});

/** Sends the examples of every operation in an order in which all succeed, each with its required parameters. */
async function executeAll(api: Api): Promise<void> {
  const { paths } = (await api.get('/openapi.json')).body;
  const made: Record<string, string | undefined> = { event: buildEventId(1) };
  const exampleOf = ({ name, example, schema }: Json) => String(made[name] ?? example ?? schema.examples[0]);
  for (const method of ['post', 'put', 'patch', 'get', 'delete']) {
    const described = Object.entries<Json>(paths).filter(([, item]) => method in item);
    for (const [path, item] of method === 'delete' ? described.toReversed() : described) {
      const { operationId, parameters = [], requestBody, responses } = item[method];
      if (responses[200]?.content?.['text/event-stream'] !== undefined) continue;
      const { example, examples } = requestBody?.content['application/json'] ?? {};
      const bodies = examples === undefined ? [example] : Object.values<Json>(examples).map(({ value }) => value);
      const isMany = operationId.includes('Many');
      for (const body of bodies) {
        const sent = parameters.filter(({ name, required }: Json) => required || (isMany && name === 'owner'));
        const query = new URLSearchParams(
          sent.filter((one: Json) => one.in === 'query').map((one: Json) => [one.name, exampleOf(one)]),
        );
        const values = new Map(sent.map((one: Json) => [one.name, exampleOf(one)]));
        const url = path.replaceAll(/\{(\w+)\}/g, (_all, name) => encodeURIComponent(String(values.get(name) ?? '')));
        const address = query.size > 0 ? `${url}?${query}` : url;
        const reply = await api.send(
          method.toUpperCase(),
          address,
          {},
          body === undefined ? undefined : JSON.stringify(body),
        );
        expect([operationId, Math.floor(reply.status / 100), reply.text]).toEqual([operationId, 2, reply.text]);
        executed.push(operationId);
        if (operationId === 'createApiKey') made.id = reply.body.details.id;
        if (operationId === 'listStreams') made.stream_id_developer ??= reply.body.result[0]?.id_developer;
      }
    }
  }
}

it('finds the shards of every command that an operation sends as docs/sharding.md says', () => {
  const found = new Set(
    recorded.flatMap((one) => {
      const key = keys.get(one.collection) ?? [];
      if (key.length === 0) return [];
      const target = one.command === 'change stream' ? 'all' : targetOf(one.filter, key);
      return [
        [one.collection, one.command, one.command === 'change stream' ? 'none' : describeFilter(one, key), target].join(
          ' | ',
        ),
      ];
    }),
  );
  expect([...found].sort()).toEqual(
    rowsOf('sharded collection')
      .map((cells) => cells.slice(0, 4).join(' | '))
      .sort(),
  );
});

it('has executed every operation but the live feeds', () => {
  const live = service.operations.filter(({ path }) => path.endsWith('/live/'));
  // five paths at the root are no operations of the router
  expect(new Set(executed).size).toBe(service.operations.length - live.length + 5);
});

it('computes targets as mongos does', () => {
  const key = ['account', 'device'];
  const id = new mongoose.mongo.UUID();
  expect(targetOf({ account: 'a', device: 'd', at: { $gt: 1 } }, key)).toBe('one');
  expect(targetOf({ account: 'a', device: { $gt: 'd' } }, key)).toBe('those of the account');
  expect(targetOf({ $and: [{ account: 'a' }, { device: { $in: ['d'] } }] }, key)).toBe('one');
  expect(targetOf({ device: 'd', _id: id }, key)).toBe('all');
  expect(targetOf({ $or: [{ account: 'a' }] }, key)).toBe('all');
  expect(targetOf({ _id: id }, ['_id'])).toBe('one');
});
