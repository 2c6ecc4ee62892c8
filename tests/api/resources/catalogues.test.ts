import { expect, it } from '@jest/globals';
import { summarize, useTestService } from '../../support/expect-status.js';

const ctx = useTestService();

it.each([
  ['types', 'type'],
  ['sensors', 'sensor'],
  ['time_zones', 'tz'],
  ['locales', 'locale'],
])('lists /%s/ as distinct objects with the field %s', async (plural, field) => {
  const { status, body } = await ctx.api.get(`/${plural}/`);
  expect([status, Object.keys(body)]).toEqual([200, ['total_documents', 'result']]);
  expect(body.total_documents).toBe(body.result.length);
  expect(body.result.length).toBeGreaterThan(9);
  const values = body.result.map((entry: Record<string, string>) => entry[field]);
  expect(body.result).toEqual(values.map((value: string) => ({ [field]: value })));
  expect(new Set(values).size).toBe(values.length);
  expect(
    values.filter(
      (value: string) => typeof value !== 'string' || value === '' || (plural !== 'time_zones' && value.length > 50),
    ),
  ).toEqual([]);
});

it('lists locales, in pages', async () => {
  const { body } = await ctx.api.get('/locales/');
  const values = body.result.map(({ locale }: { locale: string }) => locale);
  expect(values).toEqual(expect.arrayContaining(['de-AT', 'en-US', 'es-419', 'es-ES', 'pt-BR', 'zh-CN']));
  const last = (await ctx.api.get('/locales/?order=-1&max=2&offset=1')).body;
  expect(last).toEqual({ total_documents: values.length, result: body.result.slice(-3, -1).toReversed() });
});

it('lists all time zones of the runtime, including UTC and the default', async () => {
  const zones = (await ctx.api.get('/time_zones/')).body.result.map(({ tz }: { tz: string }) => tz);
  expect(zones).toEqual(expect.arrayContaining(['UTC', 'Europe/Madrid', ...Intl.supportedValuesOf('timeZone')]));
});

it.each([
  ['types', 'type', 'type'],
  ['sensors', 'sensor', 'sensor'],
  ['time_zones', 'time_zone', 'tz'],
  ['locales', 'locale', 'locale'],
])('lists /%s/ in XML', async (plural, member, field) => {
  const { body } = await ctx.api.get(`/${plural}/`);
  const { text, headers } = await ctx.api.get(`/${plural}/`, { Accept: 'application/xml' });
  expect(headers['content-type']).toBe('application/xml; charset=utf-8');
  expect(text).toContain(
    `<response><total_documents>${body.total_documents}</total_documents><result><${member}><${field}>`,
  );
  expect(text.split(`</${field}></${member}>`).length - 1).toBe(body.total_documents);
});

it.each(['types', 'sensors', 'time_zones', 'locales'])(
  'rejects unknown parameters on /%s/ with 4004',
  async (plural) => {
    expect(summarize(await ctx.api.get(`/${plural}/?name=x&max=0`))).toBe('4004 max name');
  },
);
