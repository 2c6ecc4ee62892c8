import { afterAll, expect, it } from '@jest/globals';
import { createRandom } from '../../support/random.js';
import { type Api, createFixtures, pathOf, startTestService } from '../../support/service.js';

/**
 * Random requests of a limited key and of an unlimited one: the answers of the first are those of the second, filtered by a
 * plain model of the hierarchy (reference/access.md#limited-keys).
 */
const requests = Number(process.env.LIMITED_REQUESTS ?? 250);
const random = createRandom(Number(process.env.LIMITED_SEED ?? 29));
const pick = <T>(from: readonly T[]): T => from[Math.floor(random() * from.length)] as T;

const types = ['project', 'service', 'group', 'asset', 'device'] as const;
type Type = (typeof types)[number];

interface TreeNode {
  type: Type;
  id: string;
  parent: TreeNode | undefined;
}
type Json = Record<string, unknown> & { id_developer: string };
type Limited = TreeNode & { api: Api };

const nodes = new Map<string, TreeNode>();
const limited: Limited[] = [];

const nodeOf = (type: Type, id: string) => nodes.get(`${type} ${id}`);
const nodesOf = (type: Type) => [...nodes.values()].filter((node) => node.type === type);
const isWithin = (node: TreeNode | undefined, limit: TreeNode): boolean =>
  node !== undefined && (node === limit || isWithin(node.parent, limit));

const service = await startTestService({ countCacheThreshold: 4 });
const admin = await service.client();
const fixtures = createFixtures(admin);
const add = (type: Type, parent: TreeNode | undefined, id: string): TreeNode => {
  const node = { type, id, parent };
  nodes.set(`${type} ${id}`, node);
  return node;
};
for (let p = 0; p < 2; p++) {
  const project = add('project', undefined, await fixtures.project({ name: `n${p}` }));
  for (let s = 0; s < 2; s++) {
    const id_service = await fixtures.service({ name: `n${p}${s}`, id_project: project.id });
    const parent = add('service', project, id_service);
    for (let g = 0; g < 2; g++) {
      const group = add('group', parent, await fixtures.group({ name: `n${p}${s}${g}`, id_service }));
      const asset = add('asset', group, await fixtures.asset({ name: `n${p}${s}${g}`, id_group: group.id }));
      for (const above of [group, asset, asset])
        add('device', above, await fixtures.device(createDevice(`id_${above.type}`, above.id)));
    }
  }
}
for (const type of types)
  for (let count = 0; count < 2; count++) {
    const node = pick(nodesOf(type));
    const body = { username: 'bob', scope: type === 'device' ? 'read' : 'write', [`id_${type}`]: node.id };
    const { key } = (await admin.post('/apikeys/', body)).body.details;
    // the tree changes in place
    limited.push(Object.assign(node, { api: service.clientWith(key) }));
  }
for (const { id } of nodesOf('device'))
  if (random() < 0.7) await admin.post(pathOf('devices', id, 'streams'), { at: 1_700_000_000, data: { v: random() } });
afterAll(() => service.stop());

function createDevice(field: string, id: string): Record<string, unknown> {
  return {
    name: `d ${Math.floor(random() * 10)}`,
    type: pick(['pump', 'valve']),
    [field]: id,
    firmware: pick(['1', '2']),
    lon: random() * 4,
    lat: random() * 4,
    properties: { room: pick(['A', 'B']) },
  };
}

/** A random filter, and whether it is one of devices only. */
function createFilter(type: Type): string {
  const above = types.slice(0, types.indexOf(type));
  const filters = [
    () => '',
    () => 'enabled=true',
    () => `q=${pick(['n0', 'd 1', '1', 'n11'])}`,
    () => {
      if (above.length === 0) return 'owner=alice';
      const level = pick(above);
      return `id_${level}=${encodeURIComponent(pick(nodesOf(level)).id)}`;
    },
    ...(type === 'device'
      ? [
          () => `type=${pick(['pump', 'valve'])}`,
          () => `firmware=${pick(['1', '2'])}`,
          () => `status=${pick(['disconnected', 'no_status'])}`,
          () => '_t=str',
          () => `properties.room=${pick(['A', 'B'])}`,
          () => `geo_lon=2&geo_lat=2&geo_distance=${pick([50_000, 150_000])}`,
        ]
      : []),
  ];
  return [...new Set([pick(filters)(), pick(filters)()])]
    .filter(
      (filter, at, all) =>
        filter !== '' && all.findIndex((other) => other.split('=')[0] === filter.split('=')[0]) === at,
    )
    .join('&');
}

const idsOf = (result: readonly Json[]) => result.map(({ id_developer }) => id_developer);

/** Expected list of the limited key, by that of the unlimited one. */
const keep = (type: Type, result: readonly Json[], limit: TreeNode) =>
  result.filter(({ id_developer }) => isWithin(nodeOf(type, id_developer), limit));

const checks: readonly ((limit: Limited) => Promise<void>)[] = [
  async function list(limit) {
    const type = pick(types);
    const sort = pick(['', 'sort=created_at', 'order=-1', ...(type === 'device' ? ['sort=status', 'sort=type'] : [])]);
    const query = [createFilter(type), sort].filter(Boolean).join('&');
    const all = (await admin.get(`/${type}s/?${query}`)).body.result;
    const expected = keep(type, all, limit);
    const { total_documents, result } = (await limit.api.get(`/${type}s/?${query}`)).body;
    expect([type, query, total_documents, result]).toEqual([type, query, expected.length, expected]);
    const page = (await limit.api.get(`/${type}s/?${query}${query && '&'}max=3&offset=2`)).body;
    expect([page.total_documents, page.result]).toEqual([expected.length, expected.slice(2, 5)]);
    const lines = (await limit.api.get(`/${type}s/?${query}${query && '&'}format=ndjson`)).text;
    expect(
      lines
        .split('\n')
        .filter(Boolean)
        .map((line) => JSON.parse(line)),
    ).toEqual(expected);
  },
  async function proceed(limit) {
    const type = pick(types);
    const filter = createFilter(type);
    const all: Json[] = (await admin.get(`/${type}s/?${filter}${filter && '&'}after=0`)).body.result;
    const ids: string[] = [];
    for (let after: string | undefined = '0'; after !== undefined; ) {
      const query: string = `${filter}${filter && '&'}max=4&after=${encodeURIComponent(after)}`;
      const { body } = await limit.api.get(`/${type}s/?${query}`);
      ids.push(...idsOf(body.result));
      after = body.next;
    }
    expect([filter, ids]).toEqual([filter, idsOf(keep(type, all, limit))]);
  },
  async function count(limit) {
    const type = pick(types);
    const filter = createFilter(type);
    const by = pick(type === 'device' ? ['type', 'enabled', 'firmware'] : ['enabled', 'owner']);
    const all: Json[] = (await admin.get(`/${type}s/?${filter}`)).body.result;
    const counts = new Map<unknown, number>();
    for (const object of keep(type, all, limit)) counts.set(object[by], (counts.get(object[by]) ?? 0) + 1);
    const { body } = await limit.api.get(`/${type}s/counts/?by=${by}${filter && '&'}${filter}`);
    const total = [...counts.values()].reduce((sum, each) => sum + each, 0);
    expect([filter, body.total_documents]).toEqual([filter, total]);
    expect(new Map(body.result.map((row: Record<string, unknown>) => [row[by], row.count]))).toEqual(counts);
  },
  async function show(limit) {
    const node = pick([...nodes.values()]);
    const paths = [
      pathOf(`${node.type}s`, node.id),
      `${pathOf(`${node.type}s`, node.id, 'series')}?fields=v&at_from=1`,
    ];
    for (const path of paths) {
      const [mine, all] = [await limit.api.get(path), await admin.get(path)];
      if (isWithin(node, limit)) expect(mine.body).toEqual(all.body);
      else expect([path, mine.status]).toEqual([path, 404]);
    }
  },
  async function children(limit) {
    const node = pick([...nodes.values()].filter(({ type }) => type !== 'device'));
    const child = types[types.indexOf(node.type) + 1] as Type;
    const path = pathOf(`${node.type}s`, node.id, `${child}s`);
    const [mine, all] = [await limit.api.get(path), await admin.get(path)];
    if (isWithin(node, limit)) expect(mine.body).toEqual(all.body);
    else expect([path, mine.status]).toEqual([path, 404]);
  },
  async function streams(limit) {
    const { id, ...node } = pick(nodesOf('device'));
    const path = `/streams/?device=${encodeURIComponent(id)}`;
    const [mine, all] = [await limit.api.get(path), await admin.get(path)];
    expect(mine.body).toEqual(isWithin(nodeOf(node.type, id), limit) ? all.body : { total_documents: 0, result: [] });
  },
  async function preview(limit) {
    const type = pick(types);
    const filter = createFilter(type) || 'owner=alice';
    const all = (await admin.get(`/${type}s/?${filter}`)).body.result;
    const matched = keep(type, all, limit);
    const isNamed = matched.some(({ id_developer }) => nodeOf(type, id_developer) === limit);
    const deletion = await limit.api.delete(`/${type}s/?${filter}`);
    if (limit.type === 'device' || isNamed) expect([filter, deletion.status]).toEqual([filter, 403]);
    else expect([filter, deletion.body.details]).toEqual([filter, { matched: matched.length }]);
    if (limit.type === 'device') return;
    const change = await limit.api.patch(`/${type}s/?${filter}`, { enabled: true });
    expect([filter, change.body.details]).toEqual([filter, { matched: matched.length }]);
  },
  async function move(limit) {
    const type = pick(['service', 'group', 'asset', 'device'] as const);
    const node = pick(nodesOf(type));
    const above: Type =
      type === 'device' ? pick(['group', 'asset'] as const) : (types[types.indexOf(type) - 1] as Type);
    const target = pick(nodesOf(above));
    const body = { [`id_${above}`]: target.id };
    const api = limit.type === 'device' || random() < 0.5 ? admin : limit.api;
    const reply = await api.put(pathOf(`${type}s`, node.id), body);
    const isUnlimited = api === admin;
    const isUnmoved = node.parent === target;
    const code = (): number => {
      if (isUnlimited) return 2005;
      if (!isWithin(node, limit)) return 4041;
      if (node === limit) return isUnmoved ? 2005 : 4031;
      return isWithin(target, limit) ? 2005 : 4003;
    };
    expect([limit.type, type, reply.body.code]).toEqual([limit.type, type, code()]);
    if (reply.body.code === 2005) node.parent = target;
  },
];

it(`answers a limited key as ${requests} filtered answers of an unlimited one`, async () => {
  for (let count = 0; count < requests; count++) await pick(checks)(pick(limited));
  expect(await service.db.collection('moves').countDocuments({})).toBe(0);
}, 3_600_000);
