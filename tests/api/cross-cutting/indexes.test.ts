import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import { storedNameOf } from '../../../src/db/former-versions.js';
import { startStatusWatch } from '../../../src/events/status-watch.js';
import { silentLog } from '../../../src/lib/log.js';
import { startValueFills, startValueReviews } from '../../../src/objects/values/jobs.js';
import { waitUntil } from '../../support/process.js';
import { type Api, startTestService } from '../../support/service.js';
import { buildStreamDocument } from '../../support/stream-documents.js';

type BsonDocument = mongoose.mongo.BSON.Document;

const { UUID } = mongoose.mongo;

/**
 * Expected cost of a query:
 * `sorted`: reads the page in order from an index, and counts without examining documents;
 * `bounded`: finds the matches in an index and sorts them, keeping at most a page; counts without examining documents;
 * `clustered`: reads the page in the order of the collection, and a document on either side; counts the documents in range;
 * a number: examines at most that many documents and sorts them, keeping at most a page.
 */
type QueryCost = 'sorted' | 'bounded' | 'clustered' | number;
type Rows = readonly (readonly [query: string, cost: QueryCost])[];

const count = 600;
const t0 = 1_700_000_000;
const page = 7;

/** Parameters of every list of the hierarchy (reference/lists.md#parameters). */
const common: Rows = [
  ['', 'sorted'],
  ['enabled=0', 'sorted'],
  ['enabled=1&order=-1&offset=200', 'sorted'],
  ['owner=alice', 'sorted'],
  ['updater=bob', 'sorted'],
  [`created_at=${t0 + 30}`, 'bounded'],
  [`created_at_from=${t0 + 20}`, 'bounded'],
  [`updated_at_from=${t0 + 20}&updated_at_to=${t0 + 40}&order=-1`, 'bounded'],
  ['sort=id_developer', 'sorted'],
  ['sort=name&order=-1', 'sorted'],
  ['sort=created_at&order=-1&offset=200', 'sorted'],
  ['sort=updated_at', 'sorted'],
  [`sort=created_at&created_at_from=${t0 + 20}`, 'sorted'],
  ['q=N 3', 'sorted'],
  ['q=n&offset=20&order=-1', 'sorted'],
  ['q=n&owner=alice', count],
  ['sort=owner', count],
  ['sort=version&order=-1', count],
  ['owner=alice&enabled=1&order=-1', count],
];

const withName: Rows = [...common, ['name=n 300', 'sorted']];
const withIdentifier: Rows = [...withName, ['id_developer=n 300@acme', 'sorted']];

/** Lists by path; each parent has a tenth of all children. */
const lists: Readonly<Record<string, Rows>> = {
  '/projects/': [...withIdentifier, ['id_customer=c-1', 'sorted']],
  '/services/': [...withIdentifier, ['id_project=n 1@acme', 'sorted']],
  '/groups/': [...withIdentifier, ['id_service=n 1@acme', 'sorted'], ['id_project=n 1@acme', 'sorted']],
  '/assets/': [
    ...withIdentifier,
    ['id_group=n 1@acme', 'sorted'],
    ['id_service=n 1@acme', 'sorted'],
    ['id_project=n 1@acme', 'sorted'],
    ['id_project=n 1@acme&id_group=n 1@acme', count / 10],
  ],
  '/models/': withName,
  '/projects/n 1@acme/services/': [
    ['', 'sorted'],
    ['enabled=1', count / 10],
    ['sort=created_at', count],
  ],
  '/services/n 1@acme/groups/': [
    ['', 'sorted'],
    ['owner=alice', count / 10],
  ],
  '/groups/n 1@acme/assets/': [
    ['', 'sorted'],
    [`created_at_from=${t0}`, count],
  ],
  '/groups/n 1@acme/devices/': [
    ['', 'sorted'],
    ['offset=20', 'sorted'],
    ['type=t 1', count / 10],
  ],
  '/assets/n 2@acme/devices/': [
    ['', 'sorted'],
    ['status=no_data', count],
    ['sort=name', count],
  ],
  // few devices share a name; one index for filter and sort is cheaper than two
  '/devices/': [
    ...common,
    ['name=n 300', 'bounded'],
    ['id_developer=n 300@acme', 'sorted'],
    ['sort=device', 'sorted'],
    ['id_project=n 1@acme', 'sorted'],
    ['id_service=n 1@acme&order=-1', 'sorted'],
    ['id_project=n 1@acme&owner=alice', count / 10],
    ['id_group=n 1@acme', 'sorted'],
    ['id_asset=n 2@acme', 'sorted'],
    ['id_model=n 1@acme', 'sorted'],
    ['_t=str', 'bounded'],
    ['_t=sta', 'bounded'],
    ['type=t 1', 'sorted'],
    ['status=ok', 'bounded'],
    ['status=no_data', 'bounded'],
    ['status=no_status', 'bounded'],
    ['status=disconnected', 'bounded'],
    ['_t=sta&status=ok', count],
    ['description=d 1', 'sorted'],
    ['sensor=s 1', 'sorted'],
    ['firmware=f 1', 'sorted'],
    ['conn_address=192.0.2.1', 'sorted'],
    ['conn_type=wifi', 'sorted'],
    ['sim_card=123456789012345610', 'sorted'],
    ['telephone_number=610', 'sorted'],
    ['carrier=c 10', 'sorted'],
    ['geo_lon=10&geo_lat=10&geo_distance=1000', count / 10],
    ['geo_lon=10&geo_lat=10&geo_distance=3e7', count],
    ['sort=status', count],
    ['sort=type', count],
  ],
  '/devices/n 1@acme/deviceconfigs/': [
    ['', 'sorted'],
    ['order=-1&offset=5', 'sorted'],
    ['name=n 301', count / 10],
    ['version=301', count / 10],
    [`date_deployed_from=${t0 + 20}`, count / 10],
    [`created_at_from=${t0 + 2}&created_at_to=${t0 + 40}`, 'sorted'],
    [`updated_at_to=${t0 + 40}`, count / 10],
    ['owner=alice', count / 10],
    ['updater=bob', count / 10],
    ['sort=name', count / 10],
  ],
  '/devices/n 1@acme/streams/': [
    ['', 'clustered'],
    ['_m=1&order=-1', 'clustered'],
    ['offset=20', 'clustered'],
    [`at=${t0 + 12}`, 'clustered'],
    [`at_from=${t0 + 12}`, 'clustered'],
    [`at_to=${t0 + 40}&order=-1`, 'clustered'],
    ['sort=at', 'clustered'],
    ['_t=str', count / 10 + 2],
    ['protocol=mqtt', count / 10 + 2],
    ['owner=alice', count / 10 + 2],
    ['updater=alice', count / 10 + 2],
    [`created_at_from=${t0 + 20}`, count / 10 + 2],
    [`updated_at_to=${t0 + 20}`, count / 10 + 2],
    ['sort=created_at', count / 10 + 2],
  ],
  '/streams/': [
    ['', 'clustered'],
    ['order=-1&offset=200', 'clustered'],
    ['device=n 1@acme', 'clustered'],
    [`device=n 1@acme&at_from=${t0 + 12}`, 'clustered'],
    [`at_from=${t0 + 20}&at_to=${t0 + 40}`, count + 2],
    ['_t=sta', count + 2],
    ['protocol=mqtt', count + 2],
    ['owner=alice', count + 2],
    [`created_at_from=${t0 + 20}`, count + 2],
    ['sort=at', count + 2],
  ],
  '/mqttdevices/n 1@acme/topics/': [
    ['', 'sorted'],
    ['sort=created_at', count / 10],
  ],
  '/apikeys/': [
    ['', 'sorted'],
    ['order=-1', 'sorted'],
    ['username=alice', 'sorted'],
    ['scope=read', 'sorted'],
    ['id_project=n 1@acme', 'sorted'],
    ['id_service=n 1@acme', 'sorted'],
    ['id_group=n 1@acme', 'sorted'],
    ['id_asset=n 1@acme', 'sorted'],
    ['id_device=n 1@acme', 'sorted'],
    [`created_at_from=${t0 + 20}`, 'sorted'],
  ],
};

/** Indexes that serve no list, and their purpose. */
const otherIndexes: Readonly<Record<string, string>> = {
  'models account,filter_paths': 'checks that lists filter by declared paths only',
  'devices account,suffixed_paths': 'checks of ambiguous parameters',
  'models account,suffixed_paths': 'checks of ambiguous parameters',
  'devices stream_late,stream_safe_until': 'the status watch',
  'devices status_late,status_safe_until': 'the status watch',
  'deviceconfigs parent,name,version': 'unique version of a file',
  'deviceconfigs shared_content': 'the sweep of contents that no file has',
  'mqttcredentials parent': 'unique credentials of a device',
  'mqttcredentials username': 'unique username; looked up by the broker',
  'mqttcredentials account,device,username': 'credentials are updated and deleted by device',
  'mqtttopics parent,name': 'unique topic of a device; looked up by the broker',
  'mqtttopics parent,slot': 'limits the topics of a device',
  'apikeys digest': 'looked up by every request',
};

let profileOffset = 0;
const usedIndexes = new Set<string>();

const ids = new Map<string, mongoose.mongo.UUID>();

/** The internal id of object `i` of an account. */
function idOf(plural: string, account: string, i: number): mongoose.mongo.UUID {
  const key = `${plural} ${account} ${i}`;
  const id = ids.get(key) ?? new UUID();
  ids.set(key, id);
  return id;
}

const levels = ['projects', 'services', 'groups', 'assets'];

/** The ancestors of what is below object `i`: it and those above it, which have the same number. */
function chainOf(plural: string, account: string, i: number): mongoose.mongo.UUID[] {
  return levels.slice(0, levels.indexOf(plural) + 1).map((level) => idOf(level, account, i));
}

/** Creates the document of object `i` of an account, as stored. */
function createDocument(plural: string, account: string, i: number): BsonDocument {
  const [user, other] = i % 2 ? ['alice', 'bob'] : ['bob', 'alice'];
  const name = `n ${i}`;
  const time = t0 + Math.floor(i / 10);
  const audit = { owner: user, updater: other, created_at: time, updated_at: time };
  const parentId = `n ${i % 10}@${account}`;
  const child = { account, parent: idOf('devices', account, i % 10), device: parentId };
  /** The place below object `i % 10` of another collection. */
  const below = (above: string) => ({
    parent: idOf(above, account, i % 10),
    ancestors: chainOf(above, account, i % 10),
  });
  const resource = {
    account,
    id_developer: `${name}@${account}`,
    name,
    search_text: `${name}\0${name}@${account}\0`,
    enabled: i % 10 > 0,
    ...audit,
    version: 0,
  };
  switch (plural) {
    case 'projects':
      return { ...resource, id_customer: `c-${i % 10}` };
    case 'services':
      return { ...resource, id_project: parentId, ...below('projects') };
    case 'groups':
      return { ...resource, id_service: parentId, ...below('services') };
    case 'assets':
      return { ...resource, id_group: parentId, ...below('groups') };
    case 'devices':
      return {
        ...resource,
        ...(i % 2 ? { id_group: parentId, ...below('groups') } : { id_asset: parentId, ...below('assets') }),
        id_model: parentId,
        type: `t ${i % 20}`,
        description: `d ${i % 20}`,
        sensor: `s ${i % 20}`,
        firmware: `f ${i % 20}`,
        stream_due_at: i % 2 ? 4e9 : 0,
        status_due_at: i % 3 ? 4e9 : 0,
        stream_safe_until: i % 2 ? 3e9 : 0,
        status_safe_until: i % 3 ? 3e9 : 0,
        stream_late_from: i % 2 ? 5e9 : 0,
        status_late_from: i % 3 ? 5e9 : 0,
        networking:
          i % 2
            ? { type: 'wifi', conn_address: '192.0.2.1' }
            : {
                type: 'gprs',
                sim_card: `1234567890123456${i % 20}`,
                telephone_number: `6${i % 20}`,
                carrier: `c ${i % 20}`,
              },
        location: { type: 'Point', coordinates: [i % 20, i % 20] },
      };
    case 'deviceconfigs':
      return { ...child, ...audit, name, version: String(i), file: Buffer.from('a'), size: 1, date_deployed: time };
    case 'streams':
      return buildStreamDocument({
        ...{ account, device: parentId, parent: child.parent, at: time, created_at: time, place: i, data: {} },
        ...{ _t: i % 4 ? 'str' : 'sta', protocol: i % 3 ? 'http' : 'mqtt', owner: user },
      });
    case 'mqtttopics':
      return { ...child, name, created_at: time };
    case 'apikeys':
      return {
        account,
        id: `${i}`,
        digest: `${account} ${i}`,
        username: user,
        ...(i % 2 && { [`id_${['project', 'service', 'group', 'asset', 'device'][i % 5]}`]: 'n 1@acme' }),
        scope: i % 3 ? 'read' : 'write',
        created_at: time,
      };
    default:
      return resource;
  }
}

const collections = [
  ...['projects', 'services', 'groups', 'assets', 'models', 'devices', 'deviceconfigs', 'streams'],
  ...['mqttcredentials', 'mqtttopics', 'apikeys'],
];

const uri = new URL(process.env.TEST_MONGODB_URI ?? '');
uri.pathname = `/test-${randomUUID()}`;
const service = await startTestService({ uri: uri.href });
await waitUntil(() => service.db.isReady());
const api = await service.client();
const connection = await mongoose.createConnection(uri.href).asPromise();
const db = connection.getClient().db(uri.pathname.slice(1));
for (const plural of collections) {
  if (plural === 'mqttcredentials') continue;
  const documents = ['acme', 'other'].flatMap((account) =>
    Array.from({ length: count }, (_, i) => ({ _id: idOf(plural, account, i), ...createDocument(plural, account, i) })),
  );
  await service.db.collection(plural).insertMany(documents);
}
await db.createCollection('system.profile', { capped: true, size: 64 * 1024 * 1024 });
await db.command({ profile: 2 });
afterAll(async () => {
  await db.command({ profile: 0 });
  await connection.close();
  await service.stop();
});

/** Reads of the service, without its checks of the indexes. */
const profilerFilter = (plural: string) => ({
  ns: `${db.databaseName}.${storedNameOf(plural)}`,
  op: { $in: ['query', 'command'] },
  'command.listIndexes': { $exists: false },
});

function countCommandsOn(plural: string): Promise<number> {
  return db.collection('system.profile').countDocuments(profilerFilter(plural));
}

/** Commands with which the service has read a collection since the last call. */
async function newCommandsOn(plural: string): Promise<BsonDocument[]> {
  const profiled = await db
    .collection('system.profile')
    .find(profilerFilter(plural), { sort: { $natural: 1 } })
    .toArray();
  const newCommands = profiled.slice(profileOffset).map(({ command }) => command);
  profileOffset = profiled.length;
  return newCommands;
}

/** Explains a command: the stages of the winning plan, and the number of documents examined. */
async function explain(command: BsonDocument): Promise<{ stages: BsonDocument[]; docsExamined: number }> {
  const { lsid, $db, $clusterTime, $readPreference, ...plain } = command;
  const answer = await db.command({ explain: plain, verbosity: 'executionStats' });
  const stages: BsonDocument[] = [];
  let docsExamined = 0;
  const walk = (value: unknown, winning: boolean): void => {
    if (typeof value !== 'object' || value === null) return;
    if (winning && 'stage' in value) stages.push(value);
    for (const [key, inner] of Object.entries(value)) {
      if (key === 'totalDocsExamined') docsExamined += Number(inner);
      else if (key !== 'rejectedPlans') walk(inner, winning || key === 'winningPlan');
    }
  };
  walk(answer, false);
  return { stages, docsExamined };
}

function pluralOf(path: string): string {
  const plural = path.split('/').at(-2) ?? '';
  return plural === 'topics' ? 'mqtttopics' : plural;
}

const rows = Object.entries(lists).flatMap(([path, queries]) =>
  queries.map(([query, cost]) => ({ path, query, cost })),
);

describe('a list', () => {
  it.each(rows)('$path?$query uses an index ($cost)', async ({ path, query, cost }) => {
    const plural = pluralOf(path);
    profileOffset = await countCommandsOn(plural);
    const reply = await api.get(encodeURI(`${path}?${query}${query === '' ? '' : '&'}max=${page}`));
    expect(reply.status).toBe(200);
    expect(reply.body.result.length).toBeGreaterThan(0);
    const commands = await newCommandsOn(plural);
    const finds = commands.filter((command) => 'find' in command);
    expect(finds.length).toBeGreaterThan(0);
    for (const command of commands) {
      const { stages, docsExamined } = await explain(command);
      const names = stages.map(({ stage }) => stage);
      expect(names).not.toContain('COLLSCAN');
      for (const { stage, limitAmount } of stages) {
        if (stage === 'SORT')
          expect(limitAmount).toBeLessThanOrEqual(Number(command.limit) + Number(command.skip ?? 0));
      }
      const counting = !finds.includes(command);
      if (cost === 'sorted' || cost === 'clustered') expect(names).not.toContain('SORT');
      if (typeof cost === 'number') expect(docsExamined).toBeLessThanOrEqual(cost);
      else if (cost === 'clustered') {
        const inRange = path === '/streams/' ? count : count / 10;
        expect(docsExamined).toBeLessThanOrEqual((counting ? inRange : page + Number(command.skip ?? 0)) + 2);
      } else expect(docsExamined).toBeLessThanOrEqual(counting ? 0 : page);
      if (typeof cost === 'string') {
        for (const { indexName, keyPattern } of stages) {
          if (indexName !== undefined) usedIndexes.add(`${plural} ${Object.keys(keyPattern)}`);
        }
      }
    }
  });
});

describe('a list of a key limited to 60 of 600 devices', () => {
  it.each([
    ['', 'ancestors', page],
    ['enabled=1&type=t 1', 'type', 30],
    ['status=ok', 'ancestors', 60],
    ['sort=name', 'ancestors', 60],
  ])('%s reads the index of %s', async (query, first, cost) => {
    const body = { username: 'bob', scope: 'read', id_project: 'n 1@acme' };
    const { key } = (await api.post('/apikeys/', body)).body.details;
    profileOffset = await countCommandsOn('devices');
    const reply = await service.clientWith(key).get(`/devices/?${query}&max=${page}`);
    expect(reply.body.result.length).toBeGreaterThan(0);
    const commands = await newCommandsOn('devices');
    const { stages, docsExamined } = await explain(commands.find((command) => 'find' in command) ?? {});
    expect(Object.keys(stages.find(({ keyPattern }) => keyPattern !== undefined)?.keyPattern ?? {})[1]).toBe(first);
    expect(docsExamined).toBeLessThanOrEqual(cost);
  });
});

describe('a list of 10,100 devices', () => {
  const large = 10_100;
  let largeApi: Api;
  beforeAll(async () => {
    largeApi = await service.client({ account: 'large' });
    const devices = Array.from({ length: large }, (_, i) => ({
      _id: service.db.newId(),
      ...createDocument('devices', 'large', i),
    }));
    await service.db.collection('devices').insertMany(devices);
  });

  it.each([
    ['is scanned in order if most of it matches', t0 + 300, 7100, []],
    ['is first scanned in order if much of it matches', t0 + 410, 6000, []],
    ['is filtered and sorted if less matches', t0 + 700, 3100, ['SORT']],
  ])('%s', async (_, from, total, sorts) => {
    profileOffset = await countCommandsOn('devices');
    const { body } = await largeApi.get(`/devices/?created_at_from=${from}&max=${page}`);
    expect(body.total_documents).toBe(total);
    const ids = Array.from({ length: total }, (__, i) => `n ${i + large - total}@large`).toSorted();
    expect(body.result.map(({ id_developer }: BsonDocument) => id_developer)).toEqual(ids.slice(0, page));
    const commands = await newCommandsOn('devices');
    const { stages } = await explain(commands.find((command) => 'find' in command) ?? {});
    expect(stages.map(({ stage }) => stage).filter((stage) => stage === 'SORT')).toEqual(sorts);
  });
});

it('what jobs look for is found by indexes, and by jobs of the same time in one command', async () => {
  const deps = { db: service.db, log: silentLog, clock: Date.now };
  const jobs = [startStatusWatch(deps), startValueReviews(deps), startValueFills(deps)];
  const findLooks = () =>
    db.collection('system.profile').find({ 'command.pipeline.1.$limit': 1, 'command.pipeline.7': { $exists: true } });
  await waitUntil(async () => (await findLooks().toArray()).length > 0);
  await Promise.all(jobs.map((job) => job.stop()));
  const wide = (await findLooks().toArray()).filter(
    ({ planSummary, docsExamined }) => planSummary === 'COLLSCAN' || docsExamined > 0,
  );
  expect(wide).toEqual([]);
});

describe('the indexes', () => {
  const indexes = async (plural: string) =>
    (await db.collection(storedNameOf(plural)).indexes())
      .map(({ key, unique, partialFilterExpression }) => ({ key: Object.keys(key), unique, partialFilterExpression }))
      .filter(({ key }) => key.join() !== '_id');

  it.each(collections)('of %s are all used', async (plural) => {
    for (const { key } of await indexes(plural)) {
      const name = `${plural} ${key}`;
      // the geo index selects candidates, which are then examined
      const isUsed = usedIndexes.has(name) || name in otherIndexes || name === 'devices account,location';
      expect({ name, isUsed }).toEqual({ name, isUsed: true });
    }
  });

  it.each(collections)('of %s are not prefixes of one another', async (plural) => {
    const keys = await indexes(plural);
    for (const { key, unique, partialFilterExpression } of keys) {
      if (unique === true || partialFilterExpression !== undefined) continue;
      const longer = keys.filter(
        (other) => other.key.length > key.length && other.key.slice(0, key.length).join() === key.join(),
      );
      expect(longer).toEqual([]);
    }
  });

  it('of every list begin with the account', async () => {
    for (const name of usedIndexes) expect(name).toMatch(/^\w+ account,/);
  });
});
