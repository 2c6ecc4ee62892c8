import { expect, it } from '@jest/globals';
import { deviceTypes } from '../../../src/resources/catalogues/device-types.js';
import { locales } from '../../../src/resources/catalogues/locales.js';
import { sensorTypes } from '../../../src/resources/catalogues/sensors.js';
import { timeZones } from '../../../src/resources/catalogues/time-zones.js';
import { summarize, useTestService } from '../../support/expect-status.js';

const ctx = await useTestService();

it.each([
  ['types', 'type', deviceTypes],
  ['sensors', 'sensor', sensorTypes],
  ['time_zones', 'tz', timeZones],
  ['locales', 'locale', locales],
])('lists /%s/ as objects with the field %s', async (plural, field, entries) => {
  const { status, body } = await ctx.api.get(`/${plural}/`);
  const result = entries.map((entry) => ({ [field]: entry }));
  expect([status, body]).toEqual([200, { total_documents: entries.length, result }]);
});

it('lists locales, in pages', async () => {
  const { result } = (await ctx.api.get('/locales/')).body;
  const last = (await ctx.api.get('/locales/?order=-1&max=2&offset=1')).body;
  expect(last).toEqual({ total_documents: result.length, result: result.slice(-3, -1).toReversed() });
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
