import { expect, it } from '@jest/globals';
import { XMLParser, XMLValidator } from 'fast-xml-parser';
import { summarize, useTestService } from '../../support/expect-status.js';
import { describeResourceContract, propertiesRule } from '../../support/resource-contract.js';
import { createFixtures, pathOf } from '../../support/service.js';

const ctx = await useTestService();

describeResourceContract(ctx, {
  plural: 'assets',
  label: 'Asset',
  required: async () => ({ id_group: await ctx.fixtures.group() }),
  optional: { properties: { a: 1 } },
  rules: [propertiesRule],
  parents: { id_group: ['groups', (api) => createFixtures(api).group()] },
});

it('replaces properties as a whole', async () => {
  const id = await ctx.fixtures.asset({ properties: { a: 1, b: { c: 2 } } });
  expect((await ctx.api.put(pathOf('assets', id), { properties: { b: {} } })).body.details.properties).toEqual({
    b: {},
  });
  expect((await ctx.api.get(pathOf('assets', id))).body.properties).toEqual({ b: {} });
});

/** Keys and values with a meaning in JavaScript, MongoDB or XML (reference/identifiers.md#free-form-objects). */
const hostileProperties = `{"$where":"sleep(1)","a.b":{"c.d":1,"$set":{"x":1}},"_bsontype":"ObjectId","__proto__":{"polluted":true},"":"empty",
  "constructor":{"prototype":{}},"toJSON":1,"toBSON":null,"hasOwnProperty":0,"$ref":"x","$id":1,"_id":7,"length":3,"0":"zero","<a>&\\"'":"<b>&\\"']]>",
  "@":1,"#":2,"!":3,"?":4,"item":[[],[[1]],{},null,"",false,-0.5,1e300,5e-324,9007199254740993],"control":"\\u0001\\u001f\\uffff","lines":"a\\r\\nb\\tc ",
  "accent":"e\\u0301\\u00e9","\\ud83d\\udef0":"\\ud83d\\udef0"}`;

it.each([
  ['a\0', 'must hold well-formed text without NUL'],
  ['\ud800', 'must hold well-formed text without NUL'],
  ['\u{1F600}'.repeat(101), 'must have keys of at most 100 characters'],
])('says what is wrong with the key %j of properties', async (key, fault) => {
  const id_group = await ctx.fixtures.group();
  const refused = await ctx.api.post('/assets/', { name: 'Keys', id_group, properties: { [key]: 1 } });
  expect(refused.body.details).toEqual({ properties: fault });
});

it('stores properties under any key, interprets none and returns them unchanged', async () => {
  const id_group = await ctx.fixtures.group();
  const created = await ctx.api.post(
    '/assets/',
    `{"name":"hostile","id_group":${JSON.stringify(id_group)},"properties":${hostileProperties}}`,
  );
  expect(summarize(created)).toBe('2001');
  for (const sent of [created, await ctx.api.put('/assets/hostile@acme/', `{"properties":${hostileProperties}}`)]) {
    expect(sent.status).toBe(200);
    const { text } = await ctx.api.get('/assets/hostile@acme/');
    // parse the text and compare entries: object equality would ignore __proto__
    const properties = JSON.parse(text, (key, value) => (key === 'properties' ? entries(value) : value)).properties;
    expect(properties).toEqual(entries(JSON.parse(hostileProperties)));
  }
  expect(({} as Record<string, unknown>).polluted).toBeUndefined();
});

function entries(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(entries);
  if (typeof value !== 'object' || value === null) return value;
  return { entries: Object.entries(value).map(([key, inner]) => [key, entries(inner)]) };
}

it('shows properties in XML: <entry> for keys that are not XML names, <item> for array members, nil for null', async () => {
  const properties = {
    plain: 'x',
    'a.b': 1,
    'two words': true,
    '': 'empty',
    $where: 'y',
    '1st': 'z',
    list: [1, [2], { three: 3 }],
    nothing: null,
    blank: '',
    control: 'a\u0001b',
    mark: '<&>"\'',
  };
  const id = await ctx.fixtures.asset({ properties });
  const { text } = await ctx.api.get(pathOf('assets', id), { Accept: 'application/xml' });
  for (const part of [
    '<plain>x</plain>',
    '<a.b>1</a.b>',
    '<entry key="two words">true</entry>',
    '<entry key="">empty</entry>',
    '<entry key="$where">y</entry>',
    '<entry key="1st">z</entry>',
    '<list><item>1</item><item><item>2</item></item><item><three>3</three></item></list>',
    '<nothing nil="true"/>',
    '<control>a\uFFFDb</control>',
  ])
    expect(text).toContain(part);
  const parsed = new XMLParser({ parseTagValue: false }).parse(text, true).asset.properties;
  expect([parsed.blank, parsed.mark]).toEqual(['', '<&>"\'']);
});

it('shows hostile keys as well-formed XML', async () => {
  const id = await ctx.fixtures.asset();
  await ctx.api.put(pathOf('assets', id), `{"properties":${hostileProperties}}`);
  const { text } = await ctx.api.get(pathOf('assets', id), { Accept: 'application/xml' });
  expect(XMLValidator.validate(text)).toBe(true);
  for (const part of [
    '<entry key="$where">sleep(1)</entry>',
    '<__proto__><polluted>true</polluted></__proto__>',
    '<entry key="">empty</entry>',
    '<control>\uFFFD\uFFFD\uFFFD</control>',
  ])
    expect(text).toContain(part);
});
