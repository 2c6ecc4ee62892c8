import { describe, expect, it } from '@jest/globals';
import { summarize, useTestService } from '../../support/expect-status.js';
import { pathOf } from '../../support/service.js';

const ctx = await useTestService();
const device = await ctx.fixtures.device();
const streams = pathOf('devices', device, 'streams');

/** A free-form object of so many values in all, itself and its list included. */
const objectOf = (values: number) => ({ list: Array(values - 2).fill(0) });
/** An array of streams with so many values in all. */
const streamsOf = (values: number) => {
  const list = Array.from({ length: 10 }, () => ({ data: objectOf(4_998) }));
  return [...list, { data: objectOf(values - 10 * 4_999 - 2) }];
};
const fault = (max: number) => `must not have more than ${max} JSON values`;

describe('a body (reference/requests.md#bodies)', () => {
  it('holds up to 50,000 values', async () => {
    expect(await ctx.api.post(streams, streamsOf(50_000))).toMatchObject({ status: 200, body: { code: 2001 } });
    const { body, status } = await ctx.api.post(streams, streamsOf(50_001));
    expect([status, body]).toEqual([
      400,
      { code: 4003, message: 'validation error', details: { body: fault(50_000) } },
    ]);
    expect((await ctx.api.get(`${streams}?max=1`)).body.total_documents).toBe(11);
  });

  it.each([
    ['POST', '/projects/', 'an object', '4003 body', '4001'],
    ['PUT', '/projects/p@acme/', 'an object', '4003 body', '4001'],
    ['POST', '/streams/', 'any JSON', '4003 body', '4003 body'],
    ['DELETE', '/devices/d@acme/streams/', 'filters', '4004 body', '4004 body'],
  ])(
    'of %s %s with too many values is 4003 as %s, and 4001 if it cannot be right',
    async (method, path, _kind, ofObject, ofArray) => {
      const many = '0,'.repeat(50_000);
      expect(summarize(await ctx.api.send(method, path, {}, `{"a":[${many}0]}`))).toBe(ofObject);
      expect(summarize(await ctx.api.send(method, path, {}, `[${many}0]`))).toBe(ofArray);
      const deep = `{"a":[${many}0],"b":${'['.repeat(32)}${']'.repeat(32)}}`;
      expect(summarize(await ctx.api.send(method, path, {}, deep))).toBe(method === 'DELETE' ? '4004 body' : '4001');
    },
  );

  it('with too many values is reported after 4004, before other 4003 and 404', async () => {
    const many = `{"name":"","a":[${'0,'.repeat(50_000)}0]}`;
    const send = async (path: string) => summarize(await ctx.api.send('PUT', path, {}, many));
    expect(await send('/projects/noat/')).toBe('4004 project_id_developer');
    expect(await send('/projects/p@acme/?x=1')).toBe('4004 x');
    expect(await send('/projects/nobody@acme/')).toBe('4003 body');
  });
});

describe('a free-form object (reference/identifiers.md#free-form-objects)', () => {
  it('holds up to 5,000 values as `properties`', async () => {
    const model = await ctx.fixtures.model({ properties: objectOf(5_000) });
    const path = pathOf('models', model);
    expect((await ctx.api.get(path)).body.properties).toEqual(objectOf(5_000));
    const { body } = await ctx.api.put(path, { properties: objectOf(5_001) });
    expect(body).toMatchObject({ code: 4003, details: { properties: fault(5_000) } });
    expect(summarize(await ctx.api.post('/models/', { name: 'large', properties: objectOf(5_001) }))).toBe(
      '4003 properties',
    );
  });

  it('holds up to 5,000 values as `data`, in an array of streams too', async () => {
    const send = async (body: unknown) => (await ctx.api.post(streams, body)).body;
    expect(await send({ data: objectOf(5_000) })).toMatchObject({ code: 2001 });
    expect(await send({ data: objectOf(5_001) })).toMatchObject({ code: 4003, details: { data: fault(5_000) } });
    const nested = { a: Array.from({ length: 2_499 }, () => ({ b: 1 })), c: null, d: '' };
    expect(await send([{ data: {} }, { data: nested }])).toMatchObject({ details: { '1.data': fault(5_000) } });
    nested.a.pop();
    expect(await send([{ data: {} }, { data: nested }])).toMatchObject({ code: 2001 });
  });
});
