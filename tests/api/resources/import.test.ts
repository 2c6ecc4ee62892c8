import { once } from 'node:events';
import { type ClientRequest, type OutgoingHttpHeaders, request } from 'node:http';
import { createInterface } from 'node:readline';
import { gzipSync } from 'node:zlib';
import { describe, expect, it } from '@jest/globals';
import { issueKey } from '../../../src/objects/api-keys.js';
import { summarize, useTestService } from '../../support/expect-status.js';
import { sendImport } from '../../support/import.js';
import { waitFor } from '../../support/process.js';
import { type Api, pathOf } from '../../support/service.js';

/** Import of NDJSON and CSV (reference/import.md). */
const ctx = await useTestService();
let accounts = 0;

/** Creates a client of a new account. */
async function openAccount(): Promise<{ api: Api; account: string }> {
  const account = `import-${++accounts}`;
  return { api: await ctx.service.client({ account }), account };
}

async function show(api: Api, plural: string, id: string) {
  return (await api.get(pathOf(plural, id))).body;
}

const tree = (account: string) => [
  { resource: 'project', name: 'P', id_customer: 'c' },
  { resource: 'service', name: 'S', id_project: `P@${account}` },
  { resource: 'group', name: 'G', id_service: `S@${account}` },
  { resource: 'asset', name: 'A', id_group: `G@${account}` },
  { resource: 'model', name: 'M', properties: { range: 40 } },
];

describe('lines', () => {
  it('are created in their order, parents before their children', async () => {
    const { api, account } = await openAccount();
    const devices = Array.from({ length: 40 }, (_, n) => ({
      resource: 'device',
      name: `D ${n}`,
      type: 'pump',
      ...(n % 2 === 0 ? { id_group: `G@${account}` } : { id_asset: `A@${account}` }),
      id_model: `M@${account}`,
    }));
    const { lines, totals } = await sendImport(api, [...tree(account), ...devices]);
    expect(totals).toEqual({ created: 45, updated: 0, skipped: 0, failed: 0 });
    expect(lines.map(({ line }) => line)).toEqual(Array.from({ length: 45 }, (_, n) => n + 1));
    expect(lines[0]).toEqual({ line: 1, code: 2001, id_developer: `P@${account}` });
    expect(lines[44]).toEqual({ line: 45, code: 2001, id_developer: `D 39@${account}` });
    expect(await show(api, 'devices', `D 39@${account}`)).toEqual({
      id_developer: `D 39@${account}`,
      name: 'D 39',
      type: 'pump',
      id_asset: `A@${account}`,
      id_model: `M@${account}`,
      properties: { range: 40 },
      ...{
        enabled: true,
        frequency_status: 1440,
        frequency_stream: 1440,
        status: 'disconnected',
        time_zone: 'Europe/Madrid',
      },
      ...{ owner: 'alice', updater: 'alice', created_at: ctx.service.now(), updated_at: ctx.service.now(), version: 0 },
    });
  });

  it('report what is wrong with each of them, and do not stop', async () => {
    const { api, account } = await openAccount();
    const content = [
      '{"resource":"project","name":"P","id_customer":"c"}',
      'not json',
      '[1]',
      '{"name":"no type"}',
      '{"resource":"topic"}',
      '{"resource":"project","name":"","colour":"red"}',
      '   ',
      `{"resource":"service","name":"S","id_project":"missing@${account}"}`,
      `{"resource":"service","name":"S","id_project":"P@${account}"}`,
    ].join('\n');
    const { lines, totals } = await sendImport(api, content, '', { 'Content-Type': 'application/x-ndjson' });
    expect(lines).toEqual([
      { line: 1, code: 2001, id_developer: `P@${account}` },
      { line: 2, code: 4001, details: { line: expect.stringContaining('"not json"') } },
      { line: 3, code: 4001, details: { line: 'must be a JSON object' } },
      { line: 4, code: 4003, details: { resource: 'is required' } },
      {
        line: 5,
        code: 4003,
        details: { resource: 'must be one of project, service, group, asset, model, device, stream' },
      },
      {
        line: 6,
        code: 4003,
        details: { name: 'must be 1 to 50 characters', id_customer: 'is required', colour: 'unknown field' },
      },
      { line: 8, code: 4003, details: { id_project: 'does not exist' } },
      { line: 9, code: 2001, id_developer: `S@${account}` },
    ]);
    expect(totals).toEqual({ created: 2, updated: 0, skipped: 0, failed: 6 });
  });

  it('may have 1 MiB each', async () => {
    const { api, account } = await openAccount();
    const line = (name: string, size: number) => {
      const json = JSON.stringify({ resource: 'model', name, properties: { text: '' } });
      return json.replace('""', JSON.stringify('x'.repeat(size - json.length)));
    };
    const { lines } = await sendImport(
      api,
      [line('fits', 2 ** 20), line('long', 2 ** 20 + 1), line('z', 99)].join('\n'),
    );
    expect(lines).toEqual([
      { line: 1, code: 2001, id_developer: `fits@${account}` },
      { line: 2, code: 4131, details: { line: 'must be at most 1 MiB' } },
      { line: 3, code: 2001, id_developer: `z@${account}` },
    ]);
  });

  it('take the type from the parameter `resource`', async () => {
    const { api, account } = await openAccount();
    const { lines } = await sendImport(
      api,
      [{ name: 'M' }, { resource: 'project', name: 'P', id_customer: 'c' }],
      '?resource=model',
    );
    expect(lines.map(({ id_developer }) => id_developer)).toEqual([`M@${account}`, `P@${account}`]);
    expect((await show(api, 'models', `M@${account}`)).name).toBe('M');
    expect((await show(api, 'projects', `P@${account}`)).name).toBe('P');
  });

  it('ignore read-only fields', async () => {
    const { api, account } = await openAccount();
    const line = { resource: 'model', name: 'M', owner: 'x', updater: 'x', created_at: 1, updated_at: 1, version: 7 };
    expect((await sendImport(api, [line])).totals.created).toBe(1);
    const now = ctx.service.now();
    const written = { owner: 'alice', updater: 'alice', created_at: now, updated_at: now, version: 0 };
    expect(await show(api, 'models', `M@${account}`)).toMatchObject(written);
  });

  it('number devices of one name in their order', async () => {
    const { api, account } = await openAccount();
    const device = (fields: object = {}) => ({
      resource: 'device',
      name: 'D',
      type: 't',
      id_group: `G@${account}`,
      ...fields,
    });
    const explicit = device({ id_developer: `D-2@${account}` });
    const { lines } = await sendImport(api, [
      ...tree(account),
      device(),
      device(),
      explicit,
      device(),
      device({ name: 'D-5' }),
      device(),
    ]);
    const ids = lines.slice(5).map(({ code, id_developer }) => `${code} ${id_developer}`);
    expect(ids).toEqual([
      `2001 D@${account}`,
      `2001 D-2@${account}`,
      `2007 D-2@${account}`,
      `2001 D-3@${account}`,
      `2001 D-5@${account}`,
      `2001 D-4@${account}`,
    ]);
  });
});

describe('id_developer', () => {
  it('is kept, whatever the name', async () => {
    const { api, account } = await openAccount();
    const { lines } = await sendImport(api, [{ resource: 'model', name: 'renamed', id_developer: `first@${account}` }]);
    expect(lines).toEqual([{ line: 1, code: 2001, id_developer: `first@${account}` }]);
    expect((await show(api, 'models', `first@${account}`)).name).toBe('renamed');
  });

  it('must be of the account, unless `account` rewrites it', async () => {
    const { api, account } = await openAccount();
    const moved = tree('former').map((line) => ({ ...line, id_developer: `${line.name}@former` }));
    const refused = await sendImport(api, moved);
    expect(refused.lines.map(({ code, details }) => [code, details])).toEqual(
      Array(5).fill([4003, { id_developer: `must be an identifier of the account ${account}` }]),
    );
    const device = { resource: 'device', name: 'D', type: 't', id_assets: 'A@former', id_model: 'M@former' };
    const accepted = await sendImport(api, [...moved, device], '?account=former');
    expect(accepted.lines.map(({ id_developer }) => id_developer)).toEqual(
      ['P', 'S', 'G', 'A', 'M', 'D'].map((name) => `${name}@${account}`),
    );
    expect(await show(api, 'devices', `D@${account}`)).toMatchObject({
      id_asset: `A@${account}`,
      id_model: `M@${account}`,
    });
  });

  it.each(['no-at-sign', '@', ' x@', 'a\u0001@', 5, ''])('rejects %j', async (id) => {
    const { api, account } = await openAccount();
    const id_developer = typeof id === 'string' && id.endsWith('@') ? id + account : id;
    const { lines } = await sendImport(api, [{ resource: 'model', name: 'M', id_developer }]);
    expect(lines).toEqual([{ line: 1, code: 4003, details: { id_developer: expect.any(String) } }]);
    expect((await api.get('/models/')).body.total_documents).toBe(0);
  });
});

describe('objects that exist', () => {
  const project = { resource: 'project', name: 'P', id_customer: 'new' };

  it('are skipped by default', async () => {
    const { api, account } = await openAccount();
    await api.post('/projects/', { name: 'P', id_customer: 'old' });
    const { lines, totals } = await sendImport(api, [project]);
    expect(lines).toEqual([{ line: 1, code: 2007, id_developer: `P@${account}` }]);
    expect(totals).toEqual({ created: 0, updated: 0, skipped: 1, failed: 0 });
    expect(await show(api, 'projects', `P@${account}`)).toMatchObject({ id_customer: 'old', version: 0 });
  });

  it('are updated with on_conflict=update, where version counts', async () => {
    const { api, account } = await openAccount();
    await api.post('/projects/', { name: 'P', id_customer: 'old', description: 'kept' });
    const { lines, totals } = await sendImport(
      api,
      [
        { ...project, version: 0 },
        { ...project, version: 0, id_customer: 'stale' },
        { resource: 'project', id_developer: `P@${account}`, enabled: false },
        { resource: 'project', id_developer: `P@${account}`, name: null },
        { resource: 'project', name: 'Q', id_customer: 'c' },
        { resource: 'project', name: 'Q', id_customer: 'd' },
      ],
      '?on_conflict=update',
    );
    expect(lines).toEqual([
      { line: 1, code: 2005, id_developer: `P@${account}` },
      { line: 2, code: 4005, details: { version: 1 } },
      { line: 3, code: 2005, id_developer: `P@${account}` },
      { line: 4, code: 4003, details: { name: 'is required' } },
      { line: 5, code: 2001, id_developer: `Q@${account}` },
      { line: 6, code: 2005, id_developer: `Q@${account}` },
    ]);
    expect(totals).toEqual({ created: 1, updated: 3, skipped: 0, failed: 2 });
    expect(await show(api, 'projects', `P@${account}`)).toMatchObject({
      ...{ name: 'P', id_customer: 'new', description: 'kept', enabled: false, version: 2 },
    });
    expect(await show(api, 'projects', `Q@${account}`)).toMatchObject({ id_customer: 'd', version: 1 });
  });

  it('fail with on_conflict=fail', async () => {
    const { api, account } = await openAccount();
    const { lines } = await sendImport(api, [project, project], '?on_conflict=fail');
    expect(lines).toEqual([
      { line: 1, code: 2001, id_developer: `P@${account}` },
      { line: 2, code: 4003, details: { id_developer: 'is taken' } },
    ]);
  });

  it('keep a taken name from others', async () => {
    const { api, account } = await openAccount();
    const { lines } = await sendImport(api, [project, { ...project, id_developer: `other@${account}` }]);
    expect(lines[1]).toEqual({ line: 2, code: 4003, details: { name: 'is taken' } });
  });

  it('create models until the paths with filter of the account are used up', async () => {
    const { api } = await openAccount();
    const measures = (model: number) =>
      Array.from({ length: 10 }, (_, n) => ({ name: `m${n}`, path: `of${model}.p${n}`, filter: true }));
    const models = [0, 1, 2, 3].map((n) => ({ resource: 'model', name: `m${n}`, measures: measures(n) }));
    const { lines } = await sendImport(api, models);
    expect(lines.map(({ code }: { code: number }) => code)).toEqual([2001, 2001, 2001, 4003]);
  });
});

describe('dry_run=1', () => {
  it('answers the same and changes nothing', async () => {
    const { api, account } = await openAccount();
    await api.post('/projects/', { name: 'Old', id_customer: 'c' });
    const device = { resource: 'device', name: 'D', type: 't', id_group: `G@${account}` };
    const content = [
      ...tree(account),
      device,
      device,
      { ...device, id_developer: `D-2@${account}`, lon: 1, lat: 2 },
      { resource: 'device', id_developer: `D-2@${account}`, lon: 3 },
      { resource: 'device', id_developer: `D@${account}`, lon: 3 },
      { resource: 'device', id_developer: `D@${account}`, id_group: null },
      { resource: 'device', id_developer: `D@${account}`, id_asset: `A@${account}`, version: 0 },
      { resource: 'device', id_developer: `D@${account}`, enabled: false, version: 0 },
      { resource: 'service', name: 'lost', id_project: `none@${account}` },
      { resource: 'project', id_developer: `Old@${account}`, name: 'Q', id_customer: 'c' },
      { resource: 'project', id_developer: `New@${account}`, name: 'Q', id_customer: 'c' },
      { resource: 'project', id_developer: `New@${account}`, name: 'Old', id_customer: 'c' },
      { resource: 'group', id_developer: `G@${account}`, version: 3 },
    ];
    const dry = await sendImport(api, content, '?on_conflict=update&dry_run=1');
    expect((await api.get('/devices/')).body.total_documents).toBe(0);
    expect((await api.get('/projects/')).body.result).toMatchObject([{ name: 'Old', version: 0 }]);
    const real = await sendImport(api, content, '?on_conflict=update');
    expect(dry).toEqual(real);
    expect(real.totals).toEqual({ created: 8, updated: 4, skipped: 0, failed: 6 });
    expect(await sendImport(api, content, '?dry_run=1')).toEqual(await sendImport(api, content));
  });

  it('counts the paths with filter of the account', async () => {
    const { api, account } = await openAccount();
    const model = (name: string, count: number) => ({
      resource: 'model',
      name,
      measures: Array.from({ length: count }, (_, path) => ({ path: `${name}.${path}`, filter: true })),
    });
    await api.post('/models/', { ...model('stored', 10), resource: undefined });
    const exchanged = { ...model('f', 9), name: undefined, id_developer: `b@${account}` };
    const content = [model('a', 10), model('b', 9), model('c', 2), model('d', 1), model('e', 1), exchanged];
    const dry = await sendImport(api, content, '?on_conflict=update&dry_run=1');
    expect(dry).toEqual(await sendImport(api, content, '?on_conflict=update'));
    expect(dry.lines.map(({ code }: { code: number }) => code)).toEqual([2001, 2001, 4003, 2001, 4003, 2005]);
  });
});

describe('CSV', () => {
  const header =
    'resource,name,id_customer,id_project,id_service,id_group,type,lon,lat,enabled,networking.type,networking.conn_address,properties';

  it('takes typed cells, nested columns and JSON, and leaves out empty cells', async () => {
    const { api, account } = await openAccount();
    const content = [
      header,
      'project,P,c,,,,,,,FALSE,,,',
      `service,S,,P@${account}`,
      `group,"G ""1""",,,S@${account},,,,,,,,`,
      '',
      `device,"D\n2",,,,"G ""1""@${account}",pump,-3.7,40.4,1,ethernet,192.0.2.7,"{""room"":""A 1""}"`,
      `device,D,,,,"G ""1""@${account}",'=1+1,-3.7,40.4,1,ethernet,192.0.2.7,"{""room"":""A 1""}"`,
    ].join('\n');
    const { lines, totals } = await sendImport(api, content, '', { 'Content-Type': 'text/csv' });
    expect(totals).toEqual({ created: 4, updated: 0, skipped: 0, failed: 1 });
    expect(lines.map(({ line, code }) => [line, code])).toEqual([
      [2, 2001],
      [3, 2001],
      [4, 2001],
      [6, 4003],
      [8, 2001],
    ]);
    expect(lines[3]?.details).toEqual({ name: 'must not hold control characters' });
    expect((await show(api, 'projects', `P@${account}`)).enabled).toBe(false);
    expect(await show(api, 'devices', `D@${account}`)).toMatchObject({
      ...{ id_group: `G "1"@${account}`, type: '=1+1', lon: -3.7, lat: 40.4, enabled: true },
      ...{ networking: { type: 'ethernet', conn_address: '192.0.2.7' }, properties: { room: 'A 1' } },
    });
    expect(await show(api, 'services', `S@${account}`)).not.toHaveProperty('description');
  });

  it('takes what a spreadsheet writes: byte order mark, semicolons, CRLF and decimal commas', async () => {
    const { api, account } = await openAccount();
    await sendImport(api, tree(account));
    const rows = [
      'name;type;id_group;lon;lat;enabled',
      `D;pump;G@${account};-3,5;40,25;FALSE`,
      `E;pump;G@${account};;;`,
      '',
    ];
    const { totals } = await sendImport(api, `\ufeff${rows.join('\r\n')}`, '?resource=device');
    expect(totals).toEqual({ created: 2, updated: 0, skipped: 0, failed: 0 });
    expect(await show(api, 'devices', `D@${account}`)).toMatchObject({ lon: -3.5, lat: 40.25, enabled: false });
    expect(await show(api, 'devices', `E@${account}`)).not.toHaveProperty('lon');
  });

  it('takes lines that end in CR alone, and changes nothing where a column stands twice', async () => {
    const { api, account } = await openAccount();
    const rows = ['sep=;', 'resource;name;id_customer', 'project;P 1;c', 'project;P 2;c', ''];
    const { lines } = await sendImport(api, rows.join('\r'), '', { 'Content-Type': 'text/csv' });
    expect(lines).toEqual([
      { line: 3, code: 2001, id_developer: `P 1@${account}` },
      { line: 4, code: 2001, id_developer: `P 2@${account}` },
    ]);
    const doubled = ['name,id_customer,name', ...Array.from({ length: 5000 }, (_, n) => `A ${n},c,B ${n}`)];
    expect(await sendImport(api, doubled.join('\n'), '?resource=project')).toEqual({
      lines: [{ line: 1, code: 4003, details: { name: 'must be a column once' } }],
      totals: { created: 0, updated: 0, skipped: 0, failed: 1 },
    });
    expect((await api.get('/projects/')).body.total_documents).toBe(2);
  });

  it('takes one quote off texts that an export protects, and no other', async () => {
    const { api, account } = await openAccount();
    const texts = ["'=a", "'+a", "'-a", "'@a", "'\ta", "''a", "'a", 'a'];
    const rows = texts.map((text, n) => `M ${n},${text}`);
    await sendImport(api, ['name,description', ...rows].join('\n'), '?resource=model');
    const { result } = (await api.get('/models/')).body;
    expect(result.map(({ description }: { description: string }) => description)).toEqual([
      '=a',
      '+a',
      '-a',
      '@a',
      '\ta',
      "'a",
      "'a",
      'a',
    ]);
    expect(result[0].id_developer).toBe(`M 0@${account}`);
  });

  it('reports malformed records, unknown columns and surplus cells for their line', async () => {
    const { api, account } = await openAccount();
    const content = [
      'name,color,properties',
      'a,,',
      'b"c,,',
      '"d"e,,',
      'f,red,',
      'g,,,surplus',
      'h,,{broken',
      'i,,',
      '"open,,',
    ];
    const { lines } = await sendImport(api, content.join('\n'), '?resource=model');
    expect(lines).toEqual([
      { line: 2, code: 2001, id_developer: `a@${account}` },
      { line: 3, code: 4001, details: { line: 'has a quote in a wrong place, in cell 1' } },
      { line: 4, code: 4001, details: { line: 'has a quote in a wrong place, in cell 1' } },
      { line: 5, code: 4003, details: { color: 'unknown field' } },
      { line: 6, code: 4003, details: { 'column 4': 'unknown field' } },
      { line: 7, code: 4003, details: { properties: 'must be an object' } },
      { line: 8, code: 2001, id_developer: `i@${account}` },
      { line: 9, code: 4001, details: { line: 'has a quote that is not closed, in cell 1' } },
    ]);
  });
});

describe('the request', () => {
  it('may be empty', async () => {
    const { api } = await openAccount();
    for (const content of ['', '\n\n', '\ufeff', 'name,type\n'])
      expect(await sendImport(api, content)).toEqual({
        lines: [],
        totals: { created: 0, updated: 0, skipped: 0, failed: 0 },
      });
  });

  it('may be compressed', async () => {
    const { api, account } = await openAccount();
    const body = gzipSync(
      tree(account)
        .map((line) => JSON.stringify(line))
        .join('\n'),
    );
    const headers = { 'Content-Encoding': 'gzip', 'Content-Type': 'application/octet-stream' };
    const reply = await api.send('POST', '/import/', headers, body);
    expect(reply.text.split('\n').at(-2)).toBe('{"totals":{"created":5,"updated":0,"skipped":0,"failed":0}}');
    const broken = await api.send('POST', '/import/', headers, Buffer.from('not compressed'));
    expect(broken.text).toBe(
      '{"line":1,"code":4001,"details":{"body":"must be compressed as Content-Encoding says"}}\n{"totals":{"created":0,"updated":0,"skipped":0,"failed":1}}\n',
    );
  });

  it('rejects wrong parameters and small scopes', async () => {
    const { api } = await openAccount();
    for (const query of [
      'resource=topic',
      'on_conflict=merge',
      'dry_run=0',
      'dry_run=true',
      'account=a/b',
      'x=1',
      'dry_run=',
    ])
      expect([query, summarize(await api.post(`/import/?${query}`, {}))]).toEqual([
        query,
        `4004 ${query.split('=')[0]}`,
      ]);
    const reader = await ctx.service.client({ scope: 'read' });
    expect(summarize(await reader.post('/import/', {}))).toBe('4031');
  });
});

describe('streaming', () => {
  /** Opens an import whose body the test writes. */
  async function openImport(
    more: OutgoingHttpHeaders = {},
  ): Promise<{ sent: ClientRequest; next: () => Promise<unknown>; account: string }> {
    const account = `import-${++accounts}`;
    const { key } = await issueKey(ctx.service.db, { account, username: 'alice', scope: 'write' }, 0);
    const sent = request(`${ctx.service.url}/import/`, { method: 'POST', headers: { 'service.apikey': key, ...more } });
    sent.flushHeaders();
    const lines = once(sent, 'response').then(([response]) =>
      createInterface({ input: response })[Symbol.asyncIterator](),
    );
    return { sent, account, next: async () => JSON.parse((await (await lines).next()).value ?? 'null') };
  }

  it.each([
    ['is still sent', {}],
    ['of a known length pauses', { 'Content-Length': 6 * 34 }],
  ])('answers each line while the body %s', async (_how, headers) => {
    const { sent, next, account } = await openImport(headers);
    for (let n = 1; n <= 5; n++) {
      sent.write(`{"resource":"model","name":"M ${n}"}\n`);
      expect(await next()).toEqual({ line: n, code: 2001, id_developer: `M ${n}@${account}` });
    }
    sent.end('{"resource":"model","name":"last"}');
    expect(await next()).toEqual({ line: 6, code: 2001, id_developer: `last@${account}` });
    expect(await next()).toEqual({ totals: { created: 6, updated: 0, skipped: 0, failed: 0 } });
    expect(await next()).toBeNull();
  });

  it('answers a proxy when the whole body is there', async () => {
    const { sent, next, account } = await openImport({ 'X-Forwarded-For': '192.0.2.7' });
    let hasBegun = false;
    sent.once('response', () => {
      hasBegun = true;
    });
    const lines = ['{"resource":"model","name":"One"}', '{"resource":"model","name":"Two"}'];
    sent.write(`${lines[0]}\n`);
    const other = await ctx.service.client({ account });
    await waitFor(
      async () => (await other.get('/models/')).body.total_documents,
      (total) => total === 1,
    );
    expect(hasBegun).toBe(false);
    sent.end(lines[1]);
    expect(await next()).toEqual({ line: 1, code: 2001, id_developer: `One@${account}` });
    expect(await next()).toEqual({ line: 2, code: 2001, id_developer: `Two@${account}` });
    expect(await next()).toEqual({ totals: { created: 2, updated: 0, skipped: 0, failed: 0 } });
  });

  it('leaves out a line whose client leaves in the middle of it', async () => {
    const { sent, next, account } = await openImport();
    sent.on('error', () => undefined);
    sent.write('{"resource":"model","name":"whole"}\n{"resource":"model","name":"half"}');
    expect(await next()).toEqual({ line: 1, code: 2001, id_developer: `whole@${account}` });
    sent.destroy();
    const other = await ctx.service.client({ account });
    const after = await sendImport(other, [{ resource: 'model', name: 'later' }]);
    expect(after.totals.created).toBe(1);
    const { result } = (await other.get('/models/')).body;
    expect(result.map(({ name }: { name: string }) => name)).toEqual(['later', 'whole']);
  });
});
