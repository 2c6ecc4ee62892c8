import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from '@jest/globals';
import { buildEventId, logEvents } from '../../support/logged-events.js';
import { type Api, startTestService } from '../../support/service.js';
import { createKey, follow } from '../../support/sse.js';
import { wordsOf } from '../../support/words.js';

// biome-ignore lint/suspicious/noExplicitAny: the document is looked into at many depths
type Json = any;
type Named = readonly [where: string, node: Json];

const folder = mkdtempSync(join(tmpdir(), 'openapi-'));
mkdirSync(join(folder, 'demo'));
writeFileSync(join(folder, 'demo/march.csv'), 'a;b\n');
const service = await startTestService({ filestore_local_root: folder });
const document = (await service.clientWith(undefined).get('/openapi.json')).body;
afterAll(async () => {
  await service?.stop();
  rmSync(folder, { recursive: true });
});

/** Follows a reference into the document. */
function resolve(node: Json): Json {
  const { $ref } = node;
  if ($ref === undefined) return node;
  const target = $ref.split('/').slice(1);
  return target.reduce((inner: Json, key: string) => inner[key], document);
}

interface Described {
  method: string;
  path: string;
  operation: Json;
}

/** The operations, in the order of the document. */
function describedOperations(): Described[] {
  const methods = ['get', 'post', 'put', 'patch', 'delete'];
  return Object.entries<Json>(document.paths).flatMap(([path, item]) =>
    methods.filter((method) => method in item).map((method) => ({ method, path, operation: item[method] })),
  );
}

function findOperation(operationId: string): Json {
  return describedOperations().find(({ operation }) => operation.operationId === operationId)?.operation;
}

function describedParameters(): Named[] {
  return describedOperations().flatMap(({ operation }) =>
    (operation.parameters ?? []).map((one: Json): Named => [`${operation.operationId} ${one.in} ${one.name}`, one]),
  );
}

/** A schema and those in it, without following references. */
function schemasIn(where: string, schema: Json): Named[] {
  const inner = [
    ...Object.entries(schema.properties ?? {}).map(([key, value]): Named => [`${where}.${key}`, value]),
    ...(schema.items === undefined ? [] : [[`${where}[]`, schema.items] as const]),
  ];
  return [[where, schema], ...inner.flatMap(([name, value]) => schemasIn(name, value))];
}

/** Every schema of the document: components, parameters, bodies, responses, headers. */
function describedSchemas(): Named[] {
  const contentOf = (where: string, { content = {} }: Json): Named[] =>
    Object.entries<Json>(content).map(([type, { schema }]) => [`${where} ${type}`, schema]);
  const roots: Named[] = [
    ...Object.entries(document.components.schemas),
    ...Object.entries<Json>(document.components.headers).map(([name, { schema }]): Named => [name, schema]),
    ...describedParameters().map(([where, { schema }]): Named => [where, schema]),
    ...describedOperations().flatMap(({ operation }) => [
      ...contentOf(operation.operationId, operation.requestBody ?? {}),
      ...Object.entries<Json>(operation.responses).flatMap(([status, one]) =>
        contentOf(`${operation.operationId} ${status}`, resolve(one)),
      ),
    ]),
  ];
  return roots.flatMap(([where, schema]) => schemasIn(where, schema));
}

describe('names', () => {
  it('of operations are unique, and a verb with the type', () => {
    const ids = describedOperations().map(({ operation }) => operation.operationId);
    expect(new Set(ids).size).toBe(ids.length);
    const verbs = 'list|get|count|create|update|delete|download|follow|import|link|unlink';
    for (const id of ids) expect(id).toMatch(new RegExp(`^(?:${verbs})[A-Z][A-Za-z]+$`));
    const types = ['Project', 'Service', 'Group', 'Asset', 'Device', 'Model'];
    const five = types.flatMap((type) => [
      `list${type}s`,
      ...['create', 'get', 'update', 'delete'].map((verb) => verb + type),
    ]);
    const pairs = ['Service Project', 'Group Service', 'Asset Group', 'Device Group', 'Device Asset'];
    const ofParents = pairs
      .map(wordsOf)
      .flatMap(([child, parent]) => [`list${child}sOf${parent}`, `get${child}Of${parent}`]);
    expect(ids).toEqual(expect.arrayContaining([...five, ...ofParents, 'createStreamsOfDevice', 'createApiKey']));
  });

  it('of schemas are types of the interface, and no types that languages have', () => {
    const names = Object.keys(document.components.schemas);
    const builtIn = wordsOf(`
      any array boolean class date dict enum error event exception file float function integer interface list map module
      none null number object optional record request response result set string tuple type union
    `);
    for (const name of names) expect(name).toMatch(/^[A-Z][a-z]+(?:[A-Z][a-z]+)*$/);
    expect(names.filter((name) => builtIn.includes(name.toLowerCase()))).toEqual([]);
    const types = ['Project', 'Service', 'Group', 'Asset', 'Device', 'Model'];
    const ofResources = types.flatMap((type) => ['', 'Create', 'Update', 'List'].map((suffix) => type + suffix));
    expect(names).toEqual(expect.arrayContaining([...ofResources, 'Problem', 'Status', 'StreamCreate']));
  });

  it('of paths differ by more than a closing slash, and those of parameters differ', () => {
    const paths = Object.keys(document.paths).map((path) => path.replace(/\/$/, ''));
    expect(new Set(paths).size).toBe(paths.length);
    const parameters = describedParameters().map(([where]) => where);
    expect(new Set(parameters).size).toBe(parameters.length);
  });
});

describe('schemas', () => {
  it('are flat', () => {
    const conditions = ['anyOf', 'oneOf', 'allOf', 'not', 'if', 'const', 'default', 'patternProperties', 'prefixItems'];
    const schemas = describedSchemas();
    expect(schemas.length).toBeGreaterThan(1000);
    for (const [where, schema] of schemas)
      expect([where, conditions.filter((key) => key in schema)]).toEqual([where, []]);
  });

  it('have one type, with null where an answer has it and where a body may leave out a scalar field', () => {
    const nullable = describedSchemas().filter(([, { type }]) => Array.isArray(type));
    const others = nullable.map(([where]) => where).filter((where) => !/^\w+(?:Create|Update)\./.test(where));
    const members = { DeviceConfigCount: ['desired', 'reported'], StreamListMetadata: ['at_first', 'at_last'] };
    const expected = Object.entries(members).flatMap(([title, names]) => names.map((name) => `${title}.${name}`));
    expect([...new Set(others)]).toEqual(expected);
    for (const [where, { type }] of nullable) {
      const scalar = expect.stringMatching(/^(?:string|number|integer|boolean)$/);
      expect([where, type]).toEqual([where, [scalar, 'null']]);
    }
    const { DeviceUpdate, DeviceCreate } = document.components.schemas;
    const { sensor, lon, name, id_group, version, type } = DeviceUpdate.properties;
    expect(DeviceCreate.properties.sensor).toEqual(sensor);
    expect([sensor.type, id_group.type]).toEqual([
      ['string', 'null'],
      ['string', 'null'],
    ]);
    expect([lon.type, version.type]).toEqual([
      ['number', 'null'],
      ['integer', 'null'],
    ]);
    expect([name.type, type.type]).toEqual(['string', 'string']);
    // a number, a text or a boolean; a number or a name
    const untyped = ['AlarmCondition.value', 'SeriesMetadata.every'];
    for (const [where, { type, $ref }] of describedSchemas())
      if (!untyped.includes(where)) expect([where, type ?? $ref]).not.toEqual([where, undefined]);
  });

  it('have numbers with a format, as programs may otherwise take 32 bits', () => {
    for (const [where, { type, format }] of describedSchemas()) {
      if ([type].flat().includes('number')) expect([where, format]).toEqual([where, 'double']);
      if ([type].flat().includes('integer')) expect([where, format]).toEqual([where, 'int64']);
    }
  });

  it('have enums of one type whose names differ in letters and digits', () => {
    for (const [where, { type, enum: values }] of describedSchemas()) {
      if (values === undefined) continue;
      const types = values.map((value: unknown) => (typeof value === 'number' ? 'integer' : typeof value));
      expect([where, [...new Set(types)]]).toEqual([where, [type]]);
      const names = values.map((value: unknown) => String(value).replace('-', 'minus').replaceAll(/\W/g, ''));
      expect([where, new Set(names).size]).toEqual([where, values.length]);
    }
  });

  it('have objects with declared properties, or with any', () => {
    for (const [where, { type, properties, additionalProperties }] of describedSchemas()) {
      if (type === 'object')
        expect([where, properties !== undefined || additionalProperties === true]).toEqual([where, true]);
    }
  });

  it('do not refer to themselves', () => {
    const referencesOf = (name: string): string[] =>
      [...JSON.stringify(document.components.schemas[name]).matchAll(/"#\/components\/schemas\/(\w+)"/g)].map(
        ([, target = '']) => target,
      );
    const visit = (name: string, above: readonly string[]) => {
      expect(above).not.toContain(name);
      for (const target of referencesOf(name)) visit(target, [...above, name]);
    };
    for (const name of Object.keys(document.components.schemas)) visit(name, []);
  });
});

it('declares the lengths that conditions of alarm rules and time zones have', () => {
  const { AlarmCondition, DeviceCreate, DeviceUpdate } = document.components.schemas;
  const { path, absent, value } = AlarmCondition.properties;
  for (const schema of [path, absent]) expect(schema).toMatchObject({ minLength: 1, maxLength: 500 });
  expect(value).toMatchObject({ maxLength: 1000 });
  for (const { properties } of [DeviceCreate, DeviceUpdate])
    expect(properties.time_zone).toMatchObject({ minLength: 1, maxLength: 100 });
});

it('declares that alarms are filtered by several states', () => {
  for (const id of ['listAlarms', 'listAlarmsOfDevice', 'countAlarms', 'updateManyAlarms']) {
    const { schema } = findOperation(id).parameters.find(({ name }: Json) => name === 'state');
    const [single, two] = [
      ['active', 'acknowledged', 'closed'],
      ['active,acknowledged', 'active,closed', 'acknowledged,closed'],
    ];
    expect([id, schema.enum.toSorted()]).toEqual([id, [...single, ...two, single.join()].sort()]);
  }
});

it('declares the entity tags of the state of a device, and the headers that compare them', () => {
  const operations = ['getStateOfDevice', 'updateDesiredState', 'updateReportedState', 'updateDesiredDeviceConfig'];
  const headersOf = ({ parameters }: Json) =>
    parameters.filter((one: Json) => one.in === 'header').map(({ name }: Json) => name);
  for (const id of operations) expect(Object.keys(findOperation(id).responses[200].headers)).toContain('ETag');
  expect(operations.map((id) => headersOf(findOperation(id)))).toEqual([['If-None-Match'], ['If-Match'], [], []]);
  expect(findOperation('getStateOfDevice').responses).toHaveProperty('304');
});

it('declares 4003 for deletions of what others can need', () => {
  const codesOf = (operationId: string) => {
    const { examples } = resolve(findOperation(operationId).responses[400]).content['application/json'];
    return Object.values<Json>(examples).map(({ value }) => value.code);
  };
  expect(codesOf('deleteSavedFilter')).toEqual([4004, 4003]);
  expect(codesOf('deleteModel')).toEqual([4004, 4003]);
  expect(codesOf('deleteManyModels')).toEqual([4004, 4003, 4005]);
  expect([codesOf('deleteGroup'), codesOf('deleteManyGroups')]).toEqual([[4004], [4004, 4005]]);
});

describe('documentation', () => {
  const hasExample = ({ example, examples, schema = {} }: Json) =>
    [example, examples?.[0], schema.examples?.[0]].some((value) => value !== undefined);

  it('describes every parameter, property and header, with an example', () => {
    const properties = describedSchemas().filter(([where, { $ref }]) => where.includes('.') && $ref === undefined);
    const headers = Object.entries(document.components.headers);
    for (const [where, node] of [...describedParameters(), ...properties, ...headers] as Named[]) {
      if (where.endsWith('[]')) continue;
      expect([where, node.description]).toEqual([where, expect.stringMatching(/^\S.*\.$/s)]);
      expect([where, hasExample(node)]).toEqual([where, true]);
    }
    for (const [where, node] of Object.entries<Json>(document.components.schemas))
      expect([where, node.description]).toEqual([where, expect.stringMatching(/./)]);
  });

  it('repeats no sentence in the description of a parameter', () => {
    for (const [where, { description }] of describedParameters()) {
      const sentences = description.split(/(?<=\.) /);
      expect([where, sentences]).toEqual([where, [...new Set(sentences)]]);
    }
  });

  it('describes every tag and operation', () => {
    const tags = document.tags.map(({ name }: Json) => name);
    for (const { name, description } of document.tags)
      expect([name, description]).toEqual([name, expect.stringMatching(/./)]);
    for (const { operation } of describedOperations()) {
      expect(tags).toEqual(expect.arrayContaining(operation.tags));
      expect(operation.summary).toMatch(/./);
      expect(operation.description).toMatch(/./);
    }
    expect(document.info).toMatchObject({ license: { name: 'MIT' }, contact: { url: expect.any(String) } });
  });

  it('gives no value to optional parameters, which a reference page would fill in', () => {
    for (const [where, { required, example, examples }] of describedParameters())
      expect([where, example !== undefined, examples]).toEqual([where, required, undefined]);
  });

  it('names the providers of linked storage', () => {
    const providers = describedParameters().filter(([where]) => where.endsWith('path provider'));
    expect(providers).toHaveLength(3);
    for (const [, { schema }] of providers) expect(schema.enum).toEqual(['s3', 'webdav', 'dropbox', 'local']);
  });
});

it.each([
  ['Device', 'updated_at', { 'x-unit': 'seconds since 1970' }],
  ['Device', 'frequency_stream', { 'x-unit': 'minutes' }],
  ['Device', 'lat', { 'x-unit': 'degrees' }],
  ['Device', 'id_model', { 'x-references': 'models' }],
  ['DeviceUpdate', 'id_group', { 'x-references': 'groups' }],
  ['DeviceCreate', 'time_zone', { 'x-catalogue': 'time_zones' }],
  ['DeviceCreate', 'id_assets', { 'x-alias-of': 'id_asset', 'x-references': 'assets' }],
  ['Device', 'description', {}],
  ['Stream', 'device', { 'x-references': 'devices' }],
  ['StorageFile', 'size', { 'x-unit': 'bytes' }],
  ['StorageCreate', 'bucket', { 'x-provider': 's3' }],
  ['Delivery', 'took_ms', { 'x-unit': 'milliseconds' }],
])('annotates %s.%s with %j (reference/configuration.md#api-description)', (type, field, expected) => {
  const keywords = Object.entries(document.components.schemas[type].properties[field]);
  expect(Object.fromEntries(keywords.filter(([keyword]) => keyword.startsWith('x-')))).toEqual(expected);
});

it('describes members that are shown on request, and does not require them', () => {
  const { Device, LatestValues, OpenAlarms } = document.components.schemas;
  expect(Device.properties).toMatchObject({
    latest: { $ref: '#/components/schemas/LatestValues' },
    alarms: { $ref: '#/components/schemas/OpenAlarms' },
  });
  expect(Device.required).not.toContain('latest');
  expect([LatestValues['x-requested'], OpenAlarms['x-requested']]).toEqual([true, true]);
  expect(Object.keys(LatestValues.properties)).toEqual(['at', 'data']);
});

describe('examples', () => {
  const order = ['post', 'put', 'patch', 'get', 'delete'];
  /** Identifiers of a key, a stream and an event in this run: the examples that cannot be known before. */
  const made: Record<string, string | undefined> = {};

  /** Requests in an order in which all succeed: creates, changes, reads, then deletions from the end. */
  function orderedOperations(): Described[] {
    const operations = describedOperations();
    return order.flatMap((method) => {
      const ofMethod = operations.filter((one) => one.method === method);
      return method === 'delete' ? ofMethod.toReversed() : ofMethod;
    });
  }

  function exampleOf({ name, example, schema }: Json): string {
    return String(made[name] ?? example ?? schema.examples[0]);
  }

  async function request(api: Api, { method, path, operation }: Described, parameters: Json[], body?: unknown) {
    const inPlace = (place: string) => parameters.filter((one) => one.in === place);
    const values = new Map(inPlace('path').map((one) => [one.name, exampleOf(one)]));
    const query = new URLSearchParams(inPlace('query').map((one): [string, string] => [one.name, exampleOf(one)]));
    const headers = Object.fromEntries(inPlace('header').map((one) => [one.name, exampleOf(one)]));
    const url = path.replaceAll(/\{(\w+)\}/g, (_all, name) => encodeURIComponent(values.get(name) ?? ''));
    const text = body === undefined ? undefined : JSON.stringify(body);
    const address = query.size > 0 ? `${url}?${query}` : url;
    const { operationId, responses } = operation;
    if (responses[200]?.content?.['text/event-stream'] !== undefined) {
      const key = await createKey(service, { account: 'demo', username: 'admin' });
      const feed = await follow(service.url + address, { ...headers, ...key.headers });
      expect([operationId, feed.status]).toEqual([operationId, 200]);
      await feed.close();
      return;
    }
    const reply = await api.send(method.toUpperCase(), address, headers, text);
    const success = expect.objectContaining({ status: expect.stringMatching(/^2/) });
    expect({ operationId, status: String(reply.status), body: reply.text }).toEqual(success);
    expect([operationId, Object.keys(responses)]).toEqual([
      operationId,
      expect.arrayContaining([String(reply.status)]),
    ]);
    if (operationId === 'createApiKey') made.id = reply.body.details.id;
    if (operationId === 'createCommand') made.command = reply.body.details.id;
    // one that is answered cannot be cancelled
    if (operationId === 'createCommandResult')
      made.command = (await api.post(address.replace(/[^/]+\/result\/$/, ''), { name: 'stop' })).body.details.id;
    // the list with all filters is empty
    if (operationId === 'listStreams') made.stream_id_developer ??= reply.body.result[0]?.id_developer;
  }

  it('succeed as they are on a new account, without and with all optional parameters', async () => {
    const api = await service.client({ account: 'demo', username: 'admin' });
    made.event = buildEventId(1);
    await logEvents(service, [{ id_group: 'Hall 1@demo' }], { account: 'demo' });
    const id = '01a201a7-a8d1-798a-9484-a211201349cf';
    const raised = { id, device: 'Pump@demo', state: 'active', values: {}, raised_at: 1, watch_key: id, revision: 0 };
    await service.db.collection('alarms').insertOne({ _id: service.db.newId(), account: 'demo', ...raised });
    const connection = {
      client_id: 'pump-1',
      device: 'Pump@demo',
      address: '192.0.2.7',
      connected_at: 1,
      messages: 42,
    };
    await service.db
      .collection('mqtt_connections')
      .insertOne({ _id: service.db.newId(), account: 'demo', ...connection, drops: 0, connection: id, instance: id });
    const operations = orderedOperations();
    for (const one of operations) {
      // `points` excludes `every`, and `after` excludes `sort`, which come before them
      const all: Json[] = one.operation.parameters ?? [];
      const parameters = all.filter(({ name }) => !['points', 'after'].includes(name));
      const { example, examples } = one.operation.requestBody?.content['application/json'] ?? {};
      const bodies = examples === undefined ? [example] : Object.values<Json>(examples).map(({ value }) => value);
      const hasOptional = parameters.some((parameter: Json) => !parameter.required);
      for (const body of bodies) {
        if (hasOptional) await request(api, one, parameters, body);
        // a change of many objects needs one of its optional filters
        if (one.operation.operationId.includes('Many')) continue;
        await request(
          api,
          one,
          parameters.filter((parameter: Json) => parameter.required),
          body,
        );
      }
    }
    expect(operations.length).toBe(service.operations.length + 5);
    expect((await api.get('/projects/')).body.total_documents).toBe(0);
  });

  it('of a stream has the checksum of its data', async () => {
    const api = await service.client({ account: 'checksum', username: 'admin' });
    const { schemas } = document.components;
    const sample = ({ properties }: Json, keys: readonly string[]) =>
      Object.fromEntries(keys.map((key) => [key, properties[key].examples[0]]));
    await api.post('/projects/', { name: 'P', id_customer: 'c' });
    await api.post('/services/', { name: 'S', id_project: 'P@checksum' });
    await api.post('/groups/', { name: 'G', id_service: 'S@checksum' });
    await api.post('/devices/', { name: 'D', type: 'pump', id_group: 'G@checksum' });
    const stream = sample(schemas.StreamCreate, ['data', 'checksum']);
    expect((await api.post('/devices/D@checksum/streams/', [stream])).body.code).toBe(2001);
  });
});

it('names the parameters for paths where devices are filtered', () => {
  const { get, patch } = document.paths['/devices/'];
  for (const { description, ...operation } of [get, patch, document.paths['/devices/counts/'].get]) {
    expect(operation['x-path-filters']).toEqual(['properties', 'latest']);
    expect(description).toContain('`latest.PATH`, `latest.PATH_from`, `latest.PATH_to`');
  }
  expect(document.paths['/groups/'].get).not.toHaveProperty('x-path-filters');
});
