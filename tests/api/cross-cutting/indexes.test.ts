import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import { type Api, startTestService, type TestService } from '../../support/service.js';

type Db = mongoose.mongo.Db;
type Document = mongoose.mongo.BSON.Document;

const { UUID } = mongoose.mongo;

/**
 * How a filter is served:
 * `sorted`: the page is read in its order from the index, and counted without looking at an object;
 * `bounded`: the index finds what matches and sorts it, keeping no more than the page; counted without looking at one;
 * a number: objects are looked at, at most so many, and sorted keeping no more than the page.
 */
type Served = 'sorted' | 'bounded' | number;
type Rows = readonly (readonly [query: string, served: Served])[];

const count = 600;
const t0 = 1_700_000_000;
const page = 7;

/** The parameters of specification 4.1 and contract 6, as every list of the hierarchy takes them. */
const common: Rows = [
  ['', 'sorted'],
  ['order=-1', 'sorted'],
  ['offset=200', 'sorted'],
  ['enabled=0', 'sorted'],
  ['enabled=1&order=-1', 'sorted'],
  ['enabled=1&offset=200', 'sorted'],
  ['owner=alice', 'sorted'],
  ['updater=bob', 'sorted'],
  [`created_at=${t0 + 30}`, 'bounded'],
  [`created_at_from=${t0 + 20}`, 'bounded'],
  [`created_at_to=${t0 + 40}`, 'bounded'],
  [`created_at_from=${t0 + 20}&created_at_to=${t0 + 40}`, 'bounded'],
  [`updated_at=${t0 + 30}`, 'bounded'],
  [`updated_at_from=${t0 + 20}`, 'bounded'],
  [`updated_at_to=${t0 + 40}`, 'bounded'],
  [`updated_at_from=${t0 + 20}&updated_at_to=${t0 + 40}&order=-1`, 'bounded'],
  ['sort=id_developer', 'sorted'],
  ['sort=name&order=-1', 'sorted'],
  ['sort=created_at', 'sorted'],
  ['sort=created_at&order=-1&offset=200', 'sorted'],
  ['sort=updated_at', 'sorted'],
  ['sort=updated_at&order=-1', 'sorted'],
  [`sort=created_at&created_at_from=${t0 + 20}`, 'sorted'],
  ['sort=owner', count],
  ['sort=version&order=-1', count],
  ['owner=alice&enabled=1&order=-1', count],
];

const named: Rows = [...common, ['name=n 300', 'sorted']];
const identified: Rows = [...named, ['id_developer=n 300@acme', 'sorted']];

/** Lists by path; what is beneath one parent is a tenth of all. */
const lists: Readonly<Record<string, Rows>> = {
  '/projects/': [...identified, ['id_customer=c-1', 'sorted']],
  '/services/': [...identified, ['id_project=n 1@acme', 'sorted']],
  '/groups/': [...identified, ['id_service=n 1@acme', 'sorted']],
  '/assets/': [...identified, ['id_group=n 1@acme', 'sorted']],
  '/models/': named,
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
  // namesakes are few, and one index for the filter and the sort costs less than two
  '/devices/': [
    ...common,
    ['name=n 300', 'bounded'],
    ['id_developer=n 300@acme', 'sorted'],
    ['sort=device', 'sorted'],
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
    ['', 'sorted'],
    ['_m=1&order=-1', 'sorted'],
    ['offset=20', 'sorted'],
    [`at=${t0 + 12}`, 'sorted'],
    [`at_from=${t0 + 12}`, 'sorted'],
    [`at_to=${t0 + 40}&order=-1`, 'sorted'],
    ['sort=at', 'sorted'],
    ['_t=str', count / 10],
    ['protocol=mqtt', count / 10],
    ['owner=alice', count / 10],
    ['updater=bob', count / 10],
    [`created_at_from=${t0 + 20}`, count / 10],
    [`updated_at_to=${t0 + 20}`, count / 10],
    ['sort=created_at', count / 10],
  ],
  '/streams/': [
    ['', 'sorted'],
    ['order=-1&offset=200', 'sorted'],
    ['device=n 1@acme', 'sorted'],
    [`device=n 1@acme&at_from=${t0 + 12}`, 'sorted'],
    [`at_from=${t0 + 20}&at_to=${t0 + 40}`, 'sorted'],
    ['_t=sta', count],
    ['protocol=mqtt', count],
    ['owner=alice', count],
    [`created_at_from=${t0 + 20}`, count],
    ['sort=at', count],
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
    [`created_at_from=${t0 + 20}`, 'sorted'],
  ],
};

/** Indexes that serve no list, and what they are for. */
const others: Readonly<Record<string, string>> = {
  'deviceconfigs parent,name,version': 'a version of a file is there once',
  'mqttcredentials parent': 'a device has one set of credentials',
  'mqttcredentials username': 'a username is in use once; the broker looks it up',
  'mqttcredentials account,device,username': 'credentials are changed and removed by device',
  'mqtttopics parent,name': 'a device has a topic once; the broker looks up by parent',
  'apikeys digest': 'every request is looked up by it',
};

let service: TestService;
let api: Api;
let connection: mongoose.Connection;
let db: Db;
let profiled = 0;
const used = new Set<string>();

/** Objects as the database holds them, in two accounts. */
function stored(plural: string, account: string, i: number): Document {
  const [user, other] = i % 2 ? ['alice', 'bob'] : ['bob', 'alice'];
  const name = `n ${i}`;
  const time = t0 + Math.floor(i / 10);
  const traces = { owner: user, updater: other, created_at: time, updated_at: time };
  const upper = `n ${i % 10}@${account}`;
  const beneath = { account, parent: new UUID(), device: upper };
  const resource = {
    account,
    id_developer: `${name}@${account}`,
    name,
    enabled: i % 10 > 0,
    ...traces,
    version: 0,
    parent: new UUID(),
  };
  switch (plural) {
    case 'projects':
      return { ...resource, id_customer: `c-${i % 10}` };
    case 'services':
      return { ...resource, id_project: upper };
    case 'groups':
      return { ...resource, id_service: upper };
    case 'assets':
      return { ...resource, id_group: upper };
    case 'devices':
      return {
        ...resource,
        ...(i % 2 ? { id_group: upper } : { id_asset: upper }),
        id_model: upper,
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
      return { ...beneath, ...traces, name, version: String(i), file: Buffer.from('a'), size: 1, date_deployed: time };
    case 'streams':
      return {
        ...beneath,
        ...traces,
        _t: i % 4 ? 'str' : 'sta',
        protocol: i % 3 ? 'http' : 'mqtt',
        at: time,
        data: {},
      };
    case 'mqtttopics':
      return { ...beneath, name, created_at: time };
    case 'apikeys':
      return {
        account,
        id: `${i}`,
        digest: `${account} ${i}`,
        username: user,
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

beforeAll(async () => {
  const uri = new URL(process.env.TEST_MONGODB_URI ?? '');
  uri.pathname = `/test-${randomUUID()}`;
  service = await startTestService({ uri: uri.href });
  while (!(await service.db.isReady())) await new Promise((resolve) => setTimeout(resolve, 20));
  api = await service.client();
  connection = await mongoose.createConnection(uri.href).asPromise();
  db = connection.getClient().db(uri.pathname.slice(1));
  for (const plural of collections) {
    if (plural === 'mqttcredentials') continue;
    const documents = ['acme', 'other'].flatMap((account) =>
      Array.from({ length: count }, (_, i) => ({ _id: service.db.newId(), ...stored(plural, account, i) })),
    );
    await service.db.collection(plural).insertMany(documents);
  }
  await db.createCollection('system.profile', { capped: true, size: 64 * 1024 * 1024 });
  await db.command({ profile: 2 });
});
afterAll(async () => {
  await db.command({ profile: 0 });
  await connection.close();
  await service.stop();
});

const readsOf = (plural: string) => ({ ns: `${db.databaseName}.${plural}`, op: { $in: ['query', 'command'] } });

function recordedOn(plural: string): Promise<number> {
  return db.collection('system.profile').countDocuments(readsOf(plural));
}

/** The commands by which the service has read a collection since this was asked last. */
async function commandsOn(plural: string): Promise<Document[]> {
  const recorded = await db
    .collection('system.profile')
    .find(readsOf(plural), { sort: { $natural: 1 } })
    .toArray();
  const fresh = recorded.slice(profiled).map(({ command }) => command);
  profiled = recorded.length;
  return fresh;
}

/** What MongoDB says of a command: the stages that win, and how many objects it looks at. */
async function explained(command: Document): Promise<{ stages: Document[]; looked_at: number }> {
  const { lsid, $db, $clusterTime, $readPreference, ...plain } = command;
  const answer = await db.command({ explain: plain, verbosity: 'executionStats' });
  const stages: Document[] = [];
  let looked_at = 0;
  const walk = (value: unknown, winning: boolean): void => {
    if (typeof value !== 'object' || value === null) return;
    if (winning && 'stage' in value) stages.push(value);
    for (const [key, inner] of Object.entries(value)) {
      if (key === 'totalDocsExamined') looked_at += Number(inner);
      else if (key !== 'rejectedPlans') walk(inner, winning || key === 'winningPlan');
    }
  };
  walk(answer, false);
  return { stages, looked_at };
}

function pluralOf(path: string): string {
  const plural = path.split('/').at(-2) ?? '';
  return plural === 'topics' ? 'mqtttopics' : plural;
}

const rows = Object.entries(lists).flatMap(([path, queries]) =>
  queries.map(([query, served]) => ({ path, query, served })),
);

describe('a list', () => {
  it.each(rows)('$path?$query is served by an index ($served)', async ({ path, query, served }) => {
    const plural = pluralOf(path);
    profiled = await recordedOn(plural);
    const reply = await api.get(encodeURI(`${path}?${query}${query === '' ? '' : '&'}max=${page}`));
    expect(reply.status).toBe(200);
    expect(reply.body.result.length).toBeGreaterThan(0);
    const commands = await commandsOn(plural);
    const finds = commands.filter((command) => 'find' in command);
    expect(finds.length).toBeGreaterThan(0);
    for (const command of commands.filter((one) => finds.includes(one) || 'aggregate' in one)) {
      const { stages, looked_at } = await explained(command);
      const names = stages.map(({ stage }) => stage);
      expect(names).not.toContain('COLLSCAN');
      for (const { stage, limitAmount } of stages) {
        if (stage === 'SORT')
          expect(limitAmount).toBeLessThanOrEqual(Number(command.limit) + Number(command.skip ?? 0));
      }
      const counting = 'aggregate' in command;
      if (served === 'sorted') expect(names).not.toContain('SORT');
      if (typeof served === 'number') expect(looked_at).toBeLessThanOrEqual(served);
      else expect(looked_at).toBeLessThanOrEqual(counting ? 0 : page);
      if (typeof served === 'string') {
        for (const { indexName, keyPattern } of stages) {
          if (indexName !== undefined) used.add(`${plural} ${Object.keys(keyPattern)}`);
        }
      }
    }
  });
});

describe('a list of 10,100 devices', () => {
  const large = 10_100;
  let ofLarge: Api;
  beforeAll(async () => {
    ofLarge = await service.client({ account: 'large' });
    const devices = Array.from({ length: large }, (_, i) => ({
      _id: service.db.newId(),
      ...stored('devices', 'large', i),
    }));
    await service.db.collection('devices').insertMany(devices);
  });

  it.each([
    ['is walked in its order where most of it matches', t0 + 300, 7100, []],
    ['is sorted where less matches', t0 + 700, 3100, ['SORT']],
  ])('%s', async (_, from, total, sorts) => {
    profiled = await recordedOn('devices');
    const { body } = await ofLarge.get(`/devices/?created_at_from=${from}&max=${page}`);
    expect(body.total_documents).toBe(total);
    const ids = Array.from({ length: total }, (__, i) => `n ${i + large - total}@large`).toSorted();
    expect(body.result.map(({ id_developer }: Document) => id_developer)).toEqual(ids.slice(0, page));
    const commands = await commandsOn('devices');
    const { stages } = await explained(commands.find((command) => 'find' in command) ?? {});
    expect(stages.map(({ stage }) => stage).filter((stage) => stage === 'SORT')).toEqual(sorts);
  });
});

describe('the indexes', () => {
  const indexes = async (plural: string) =>
    (await db.collection(plural).indexes())
      .map(({ key, unique, partialFilterExpression }) => ({ key: Object.keys(key), unique, partialFilterExpression }))
      .filter(({ key }) => key.join() !== '_id');

  it.each(collections)('of %s are all needed', async (plural) => {
    for (const { key } of await indexes(plural)) {
      const name = `${plural} ${key}`;
      // places are looked at to be compared
      const needed = used.has(name) || name in others || name === 'devices account,location';
      expect({ name, needed }).toEqual({ name, needed: true });
    }
  });

  it.each(collections)('of %s do not begin with one another', async (plural) => {
    const all = await indexes(plural);
    for (const { key, unique, partialFilterExpression } of all) {
      if (unique === true || partialFilterExpression !== undefined) continue;
      const longer = all.filter(
        (other) => other.key.length > key.length && other.key.slice(0, key.length).join() === key.join(),
      );
      expect(longer).toEqual([]);
    }
  });

  it('let every list begin with the account', async () => {
    for (const name of used) expect(name).toMatch(/^\w+ account,/);
  });
});
