import { describe, expect, it } from '@jest/globals';
import { device, deviceconfig, group, project } from '../../src/resources/index.js';
import { freeform } from '../../src/schema/fields/freeform.js';
import { flag, integer, timestamp } from '../../src/schema/fields/number.js';
import { choice, exactText, name, text } from '../../src/schema/fields/text.js';
import type { FieldType } from '../../src/schema/fields.js';
import { listParametersOf } from '../../src/schema/list-parameters.js';
import { describeBody } from '../../src/schema/openapi/bodies.js';
import { buildOpenApiDocument } from '../../src/schema/openapi/document.js';
import type { Operation } from '../../src/schema/operation.js';
import { wordsOf } from '../support/words.js';

// biome-ignore lint/suspicious/noExplicitAny: the document is looked into at many depths
type Json = any;

const installation = {
  url: 'https://devices.example',
  base_path: '/api',
  key_headers: ['service.apikey', 'x-other-key'],
  version: '1.2.3',
};

const showGroup: Operation = {
  operationId: 'getGroup',
  method: 'get',
  path: '/groups/{group_id_developer}/',
  tag: 'groups',
  summary: 'Show a group',
  scope: 'read',
  result: { kind: 'object', type: group },
};
const listDevices: Operation = {
  operationId: 'listDevices',
  method: 'get',
  path: '/devices/',
  tag: 'devices',
  summary: 'List devices',
  scope: 'read',
  query: listParametersOf(device),
  result: { kind: 'list', type: device },
};
const updateGroup: Operation = {
  ...showGroup,
  operationId: 'updateGroup',
  method: 'put',
  scope: 'write',
  body: { schema: describeBody(group, true), updating: true, limit_bytes: 1024 * 1024 },
  result: { kind: 'status', success: 'updated', message: 'Group updated', details: group },
};

function documentOf(...operations: Operation[]): Json {
  return buildOpenApiDocument(operations, installation);
}

describe('the document', () => {
  const document = documentOf(showGroup, updateGroup, listDevices);

  it('has the version, the server URL and the key header', () => {
    expect(document.openapi).toBe('3.1.0');
    expect(document.info.version).toBe('1.2.3');
    expect(document.servers[0].url).toBe('https://devices.example/api');
    expect(document.security).toEqual([{ apikey: [] }, { bearer: [] }]);
    expect(document.components.securitySchemes.bearer).toMatchObject({ type: 'http', scheme: 'bearer' });
    expect(document.components.securitySchemes.apikey).toMatchObject({
      type: 'apiKey',
      in: 'header',
      name: 'service.apikey',
    });
    expect(document.components.securitySchemes.apikey.description).toContain('x-other-key');
  });

  it('is the same for the same operations', () => {
    expect(JSON.stringify(documentOf(showGroup, updateGroup, listDevices))).toBe(JSON.stringify(document));
  });

  it('has every referenced component', () => {
    const references = [...JSON.stringify(document).matchAll(/"\$ref":"#\/([^"]+)"/g)].map(([, path = '']) => path);
    expect(references.length).toBeGreaterThan(20);
    for (const path of references) {
      expect([path, path.split('/').reduce((node: Json, key) => node?.[key], document)]).toEqual([
        path,
        expect.anything(),
      ]);
    }
  });

  it('has both methods of a path, with statuses, headers and formats of their responses', () => {
    const { get, put } = document.paths['/groups/{group_id_developer}/'];
    expect(Object.keys(get.responses)).toEqual(['200', '304', '400', '401', '403', '404', '429', '503']);
    expect(Object.keys(put.responses)).toEqual(['200', '400', '401', '403', '404', '413', '429', '503']);
    expect(Object.keys(get.responses[200].content)).toEqual(['application/json', 'application/xml']);
    expect(Object.keys(get.responses[200].headers)).toEqual(['X-Request-Id', 'ETag']);
    expect(get.parameters.map((one: Json) => [one.in, one.name])).toEqual([
      ['path', 'group_id_developer'],
      ['header', 'If-None-Match'],
    ]);
    expect(put.parameters.map((one: Json) => one.name)).toEqual(['group_id_developer', 'If-Match']);
    expect([get['x-required-scope'], put['x-required-scope']]).toEqual(['read', 'write']);
    expect(get.description).toBe('For keys of scope `read`, `write`, `admin`.');
  });

  it('describes failures with their code and details', () => {
    const { schemas, responses } = document.components;
    const examplesOf = (name: string) => responses[name].content['application/json'].examples;
    const problem = { $ref: '#/components/schemas/Problem' };
    for (const { content } of Object.values<Json>(responses)) {
      expect(Object.keys(content)).toEqual(['application/json', 'application/xml']);
      for (const { schema } of Object.values<Json>(content)) expect(schema).toEqual(problem);
    }
    expect(schemas.Problem.required).toEqual(['code', 'message', 'details']);
    expect(examplesOf('NotFound').notFound.value).toEqual({ code: 4041, message: 'not found', details: {} });
    expect(responses.NotFound.description).toContain('4041');
    const badRequest = examplesOf('NoBodyOrBadParameterOrInvalidOrConflict');
    expect(Object.keys(badRequest)).toEqual(['noBody', 'badParameter', 'invalid', 'conflict']);
    expect(badRequest.invalid.value).toMatchObject({ code: 4003, details: { name: expect.any(String) } });
    expect(badRequest.conflict.value).toMatchObject({ code: 4005, details: { version: expect.any(Number) } });
    const unavailable = examplesOf('DatabaseOrExceptionOrOverloaded');
    expect(unavailable.exception.value).toMatchObject({ code: 5032, details: { message: expect.any(String) } });
    expect(responses.TooMany.headers).toHaveProperty('Retry-After');
  });

  it('describes objects as responses show them: no hidden field, always present fields required, flags as booleans', () => {
    const { Group: shown, Device: shownDevice } = document.components.schemas;
    expect(Object.keys(shown.properties).sort()).toEqual(
      wordsOf('created_at description enabled id_developer id_service name owner updated_at updater version'),
    );
    expect(shown.required).not.toContain('description');
    expect(shown.required).toHaveLength(9);
    expect(shown.additionalProperties).toBe(false);
    expect(shown.properties.enabled).toMatchObject({ type: 'boolean' });
    expect(shownDevice.required).toEqual(expect.arrayContaining(['status', 'time_zone', 'frequency_status']));
    for (const optional of ['id_group', 'id_asset', 'last_stream_at', 'lon', 'networking']) {
      expect(shownDevice.required).not.toContain(optional);
      expect(shownDevice.properties).toHaveProperty(optional);
    }
    expect(shownDevice.properties).not.toHaveProperty('location');
    for (const key of ['created_at', 'updated_at', 'last_stream_at', 'stream_due_at', 'status_due_at']) {
      expect(shownDevice.properties[key]).toMatchObject({ type: 'integer', format: 'int64', minimum: 0 });
      expect(shownDevice.properties[key]).not.toHaveProperty('maximum');
    }
  });

  it('has every list parameter once, with its range', () => {
    const { parameters } = document.paths['/devices/'].get;
    const names = parameters.map((one: Json) => one.name);
    expect(new Set(names).size).toBe(names.length);
    expect(names).toEqual(
      expect.arrayContaining(['_t', 'status', 'geo_lon', 'created_at_from', 'updated_at_to', 'conn_type', 'offset']),
    );
    const parameterOf = (name: string) => parameters.find((one: Json) => one.name === name);
    const schemaOf = (name: string) => parameterOf(name).schema;
    const descriptionOf = (name: string) => parameterOf(name).description;
    expect(schemaOf('max')).toMatchObject({ type: 'integer', minimum: 1, maximum: 1000 });
    expect(schemaOf('order')).toMatchObject({ type: 'integer', enum: [1, -1] });
    expect(descriptionOf('max')).toContain('Default: 1000.');
    expect(descriptionOf('order')).toContain('Default: 1.');
    expect(descriptionOf('sort')).toContain('Default: `device`.');
    expect(schemaOf('description').minLength).toBe(1);
    expect(schemaOf('enabled')).toEqual({ type: 'boolean', examples: [true] });
  });

  it('has the paths outside {base_url}, without a key', () => {
    for (const path of ['/healthz', '/readyz', '/metrics', '/openapi.json', '/docs/']) {
      expect(document.paths[path].servers).toEqual([{ url: 'https://devices.example' }]);
      expect(document.paths[path].get.security).toEqual([]);
    }
  });

  it('has the entity tags of its own paths', () => {
    for (const path of ['/openapi.json', '/docs/']) {
      const { parameters, responses } = document.paths[path].get;
      expect(parameters.map(({ name }: Json) => name)).toEqual(['If-None-Match']);
      for (const status of [200, 304]) expect(Object.keys(responses[status].headers)).toEqual(['X-Request-Id', 'ETag']);
    }
    expect(document.paths['/healthz'].get).not.toHaveProperty('parameters');
  });
});

describe('a body', () => {
  const create: Json = describeBody(device, false);
  const update: Json = describeBody(device, true);

  it('requires fields without default on create, and none on update', () => {
    expect(create.required).toEqual(['type', 'name']);
    expect(describeBody(project, false)).toMatchObject({ required: ['name', 'id_customer'] });
    expect(update).not.toHaveProperty('required');
    expect(create.additionalProperties).toBe(false);
  });

  it('has one type per field, null beside optional scalars, and says what null means', () => {
    expect(create.properties.frequency_status.type).toEqual(['integer', 'null']);
    expect(create.properties.type.type).toBe('string');
    expect(update.properties.type.type).toBe('string');
    expect(update.properties.sensor.type).toEqual(['string', 'null']);
    expect(create.properties.sensor.type).toEqual(['string', 'null']);
    expect(create.properties.networking.properties.carrier.type).toBe('string');
    expect(create.description).toContain('`null` counts as absent.');
    expect(update.description).toContain('`null` removes an optional field, and restores a default.');
  });

  it('describes defaults on create only, without the keyword', () => {
    expect(create.properties.time_zone.description).toContain('Default: `Europe/Madrid`.');
    expect(update.properties.time_zone.description).not.toContain('Default');
    expect(JSON.stringify([create, update])).not.toContain('"default"');
  });

  it('says that exactly one parent is given, and lon together with lat', () => {
    expect(create.description).toContain('Exactly one of `id_group` and `id_asset` is given.');
    expect(create.description).toContain('`lon` and `lat` come together.');
    expect(update.description).toContain('At most one of `id_group` and `id_asset` is given.');
    expect(describeBody(project, false).description).not.toContain('one of');
  });

  it('says that read-only fields are accepted, and describes the version of an update', () => {
    for (const body of [create, update]) {
      expect(body.description).toContain('Fields that only the service writes are accepted and ignored.');
      for (const key of ['created_at', 'status', 'id_developer']) expect(body.properties).not.toHaveProperty(key);
    }
    expect(create.properties).not.toHaveProperty('version');
    expect(update.properties.version).toMatchObject({ type: ['integer', 'null'], minimum: 0 });
  });
});

describe('the schema of a field type agrees with its validation', () => {
  const texts = [
    '',
    ' ',
    'a',
    ' a ',
    '\ta\n',
    'a\u0000',
    'a\u0007b',
    '\u0085',
    '\ufeffa\ufeff',
    '日本',
    '😀'.repeat(50),
    '😀'.repeat(51),
    ...wordsOf('. .. ... a/b a\\b .a'),
    ' . ',
    '\t..\n',
  ];
  const fits = ({ pattern, minLength = 0, maxLength = 100 }: Json, given: string) =>
    new RegExp(pattern, 'u').test(given) && [...given].length >= minLength && [...given].length <= maxLength;
  const { name: fileName, version: fileVersion } = deviceconfig.fields;
  const patterned: [string, FieldType | undefined][] = [
    ['name', name()],
    ['text', text(50)],
    ['file name', fileName?.type],
    ['file version', fileVersion?.type],
  ];

  it.each(patterned)('%s', (_name, kind) => {
    for (const given of texts) {
      const faults = {};
      kind?.body(given, 'field', faults);
      expect([given, fits(kind?.schema, given)]).toEqual([given, Object.keys(faults).length === 0]);
    }
  });

  it('for the keywords of every type', () => {
    expect(exactText(40).schema).toMatchObject({ minLength: 40, maxLength: 40 });
    expect(integer({ min: 1 }).schema).toMatchObject({ type: 'integer', minimum: 1, maximum: Number.MAX_SAFE_INTEGER });
    expect(timestamp().schema).toMatchObject({ type: 'number', minimum: 0 });
    expect(choice('a', 'b').schema).toMatchObject({ enum: ['a', 'b'] });
    expect(flag()).toMatchObject({ schema: { type: 'boolean' }, responseSchema: { type: 'boolean' } });
    expect(freeform({ levels: 5 }).schema).toMatchObject({ type: 'object', maxProperties: 100 });
  });
});
