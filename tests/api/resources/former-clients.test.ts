import { describe, expect, it } from '@jest/globals';
import { summarize, useTestService } from '../../support/expect-status.js';
import { sendImport } from '../../support/import.js';
import { pathOf, type Reply } from '../../support/service.js';

/** Programs of the former platform (reference/access.md#former-clients) and other names of fields (devices.md#parents). */
const formerHeaders = ['carriots.apikey', 'carriots-apikey', 'apikey'];
const ctx = await useTestService({ api_key_headers: ['service.apikey', ...formerHeaders] });
let key = '';
let id_group = '';
let id_asset = '';
let id_model = '';

key = (await ctx.api.post('/apikeys/', { username: 'old', scope: 'write' })).body.details.key;
const anonymous = ctx.service.clientWith(undefined);
id_group = await ctx.fixtures.group();
id_asset = await ctx.fixtures.asset({ id_group });
id_model = await ctx.fixtures.model({ properties: { range: 40 } });

const former = (method: string, path: string, body?: object, headers: Record<string, string> = {}): Promise<Reply> =>
  anonymous.send(method, path, { apikey: key, ...headers }, body && JSON.stringify(body));
const shown = ({ id_group, id_asset, id_assets, id_model }: Record<string, unknown>) => ({
  id_group,
  id_asset,
  id_assets,
  id_model,
});

describe('a device', () => {
  it.each(formerHeaders)('is shown with all references to a key in %s', async (header) => {
    const device = await ctx.fixtures.device({ id_group });
    for (const name of [header, header.toUpperCase()]) {
      const { body } = await anonymous.get(pathOf('devices', device), { [name]: key });
      expect(shown(body)).toEqual({ id_group, id_asset: null, id_assets: null, id_model: null });
    }
  });

  it('is shown as before to a key in another header, whatever else is sent', async () => {
    const device = await ctx.fixtures.device({ id_asset });
    for (const headers of [
      { 'service.apikey': key },
      { authorization: `Bearer ${key}` },
      { 'service.apikey': key, apikey: key },
      { 'service.apikey': key, 'carriots.apikey': 'x', authorization: `Bearer ${key}` },
    ]) {
      const { body } = await anonymous.get(pathOf('devices', device), headers);
      expect([body.id_asset, 'id_group' in body, 'id_assets' in body, 'id_model' in body]).toEqual([
        id_asset,
        false,
        false,
        false,
      ]);
    }
    const { body } = await anonymous.get(pathOf('devices', device), { apikey: key, authorization: `Bearer ${key}` });
    expect(body).toHaveProperty('id_assets', id_asset);
  });

  it('is shown with all references by every answer with a device, in JSON and XML', async () => {
    const parent = await ctx.fixtures.group();
    const asset = await ctx.fixtures.asset({ id_group: parent });
    const device = await ctx.fixtures.device({ id_asset: asset, id_model });
    const other = await ctx.fixtures.device({ id_group: parent });
    const ofAsset = { id_group: null, id_asset: asset, id_assets: asset, id_model };
    const ofGroup = { id_group: parent, id_asset: null, id_assets: null, id_model: null };
    expect(shown((await former('GET', pathOf('devices', device))).body)).toEqual(ofAsset);
    expect(shown((await former('GET', pathOf('assets', asset, 'devices', device))).body)).toEqual(ofAsset);
    expect(shown((await former('GET', pathOf('groups', parent, 'devices', other))).body)).toEqual(ofGroup);
    const list = async (path: string) => (await former('GET', path)).body.result.map(shown);
    expect(await list(pathOf('assets', asset, 'devices'))).toEqual([ofAsset]);
    expect(await list(pathOf('groups', parent, 'devices'))).toEqual([ofGroup]);
    expect(await list('/devices/?sort=created_at&max=1000')).toEqual(expect.arrayContaining([ofAsset, ofGroup]));
    const changed = await former('PUT', pathOf('devices', device), { description: 'changed' });
    expect(shown(changed.body.details)).toEqual(ofAsset);
    expect(changed.body.details.properties).toEqual({ range: 40 });

    const xml = { accept: 'application/xml' };
    const nulls = '<id_asset nil="true"/><id_assets nil="true"/>';
    for (const reply of [
      await former('GET', pathOf('devices', other), undefined, xml),
      await former('GET', pathOf('groups', parent, 'devices'), undefined, xml),
      await former('PUT', pathOf('devices', other), { description: 'changed' }, xml),
    ]) {
      expect(reply.text).toContain(`<id_group>${parent}</id_group>${nulls}`);
      expect(reply.text).toContain('<id_model nil="true"/>');
    }
  });

  it('has an entity tag for each form, and says by what it varies', async () => {
    const device = await ctx.fixtures.device({ id_group });
    const path = pathOf('devices', device);
    const replies = [await ctx.api.get(path), await former('GET', path)];
    const tags = replies.map(({ headers }) => headers.etag ?? '');
    expect(tags).toEqual([expect.stringMatching(/^"0\./), expect.stringMatching(/^"0\./)]);
    expect(tags[0]).not.toBe(tags[1]);
    for (const { headers } of replies)
      expect(headers.vary).toBe(
        'service.apikey, carriots.apikey, carriots-apikey, apikey, Authorization, Accept, Accept-Encoding',
      );
    const [current = '', old = ''] = tags;
    expect((await former('GET', path, undefined, { 'If-None-Match': old })).status).toBe(304);
    expect((await former('GET', path, undefined, { 'If-None-Match': current })).status).toBe(200);
    expect((await ctx.api.get(path, { 'If-None-Match': current })).status).toBe(304);
    expect(summarize(await former('PUT', path, { description: 'x' }, { 'If-Match': old }))).toBe('2005');
    expect(summarize(await former('PUT', path, { description: 'y' }, { 'If-Match': old }))).toBe('4005 version');
  });
});

it('only devices are shown in another form', async () => {
  for (const [plural, id] of [
    ['assets', id_asset],
    ['groups', id_group],
    ['models', id_model],
  ] as const)
    expect((await former('GET', pathOf(plural, id))).body).toEqual((await ctx.api.get(pathOf(plural, id))).body);
});

describe('in a body', () => {
  const create = (fields: object) => ctx.api.post('/devices/', { name: 'aliased', type: 't', ...fields });
  const read = async (reply: Reply) => {
    expect(summarize(reply)).toBe('2001');
    const { id_group, id_asset, id_model, id_assets } = (await ctx.api.get(reply.headers.location ?? '')).body;
    return { id_group, id_asset, id_model, id_assets };
  };

  it('id_assets is another name of id_asset', async () => {
    const ofAsset = { id_group: undefined, id_asset, id_model: undefined, id_assets: undefined };
    expect(await read(await create({ id_assets: id_asset }))).toEqual(ofAsset);
    expect(await read(await create({ id_assets: id_asset, id_asset }))).toEqual(ofAsset);
    expect(await read(await create({ id_assets: id_asset, id_asset: null, id_group: null }))).toEqual(ofAsset);
    expect(await read(await create({ id_assets: null, id_asset }))).toEqual(ofAsset);
    const stored = await ctx.service.db.collection('devices').findOne({ id_assets: { $exists: true } });
    expect(stored).toBeNull();
  });

  it('id_assets that differs from id_asset is 4003, with all other faults', async () => {
    const other = await ctx.fixtures.asset({ id_group });
    expect(summarize(await create({ id_assets: other, id_asset }))).toBe('4003 id_assets');
    expect(summarize(await create({ id_assets: other, id_asset, sensor: 5 }))).toBe('4003 id_assets sensor');
    const path = pathOf('devices', await ctx.fixtures.device({ id_asset }));
    expect(summarize(await ctx.api.put(path, { id_assets: other, id_asset }))).toBe('4003 id_assets');
    expect(summarize(await ctx.api.put(path, { id_assets: null, id_asset }))).toBe('4003 id_assets');
    expect((await ctx.api.get(path)).body).toMatchObject({ id_asset, version: 0 });
    expect(summarize(await ctx.api.put(path, { id_assets: other }))).toBe('2005');
    expect((await ctx.api.get(path)).body.id_asset).toBe(other);
  });

  it('faults of id_assets are named so by updates of one or many, and by imports', async () => {
    const id = await ctx.fixtures.device({ id_asset });
    const missing = { id_assets: 'nothing@acme' };
    const many = `/devices/?id_developer=${encodeURIComponent(id)}`;
    for (const reply of [
      await ctx.api.put(pathOf('devices', id), missing),
      await ctx.api.put(pathOf('devices', id), { id_assets: null }),
      await ctx.api.patch(`${many}&confirm=1`, missing),
      await ctx.api.patch(many, missing),
    ])
      expect(summarize(reply)).toBe('4003 id_assets');
    const line = { resource: 'device', name: 'D', type: 't', ...missing };
    for (const query of ['', '?dry_run=1'])
      expect((await sendImport(ctx.api, [line], query)).lines).toEqual([
        { line: 1, code: 4003, details: { id_assets: 'does not exist' } },
      ]);
  });

  it('id_assets follows the rules of id_asset', async () => {
    expect(summarize(await create({ id_assets: 'nothing@acme' }))).toBe('4003 id_assets');
    expect(summarize(await create({ id_assets: 5, id_asset: null }))).toBe('4003 id_assets');
    expect(summarize(await create({ id_assets: id_asset, id_group }))).toBe('4003 id_assets id_group');
    expect(summarize(await create({ id_assets: 5, id_asset: 5 }))).toBe('4003 id_asset');
    expect(summarize(await create({ id_assets: '', id_asset: '' }))).toBe('4003 id_asset id_group');
    expect(summarize(await ctx.api.post('/assets/', { name: 'x', id_group, id_assets: id_asset }))).toBe(
      '4003 id_assets',
    );
    expect(summarize(await ctx.api.get(`/devices/?id_assets=${id_asset}`))).toBe('4004 id_assets');
  });

  it('an empty text counts as null for references of a device', async () => {
    const blank = { id_asset: '', id_assets: '', id_model: '' };
    expect(await read(await create({ id_group, ...blank }))).toMatchObject({ id_group });
    expect(await read(await create({ id_group: '', id_asset: '', id_assets: id_asset }))).toMatchObject({ id_asset });
    expect(summarize(await create({ id_group: '', ...blank }))).toBe('4003 id_asset id_group');
    const path = pathOf('devices', await ctx.fixtures.device({ id_group, id_model }));
    expect(summarize(await ctx.api.put(path, { id_model: '' }))).toBe('2005');
    expect((await ctx.api.get(path)).body).not.toHaveProperty('id_model');
    expect(summarize(await ctx.api.put(path, { id_group: '' }))).toBe('4003 id_group');
    expect(summarize(await ctx.api.put(path, { id_group: '', id_asset, id_assets: id_asset }))).toBe('2005');
    expect((await ctx.api.get(path)).body).toMatchObject({ id_asset });
    expect(summarize(await ctx.api.put(path, { sensor: '' }))).toBe('4003 sensor');
  });
});
