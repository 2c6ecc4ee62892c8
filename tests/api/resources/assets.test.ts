import { expect, it } from '@jest/globals';
import { XMLParser, XMLValidator } from 'fast-xml-parser';
import { ownService, summarize } from '../../support/expect-status.js';
import { describeResourceContract, propertiesRule } from '../../support/resource-contract.js';
import { at, givenBy } from '../../support/service.js';

const own = ownService();

it('creates and shows an asset', async () => {
  const id_group = await own.given.group();
  const reply = await own.api.post('/assets/', { name: 'Tank', id_group, properties: { litres: 5000 } });
  expect([reply.status, reply.body]).toEqual([200, { code: 2001, message: 'Asset created', details: {} }]);
  expect(reply.headers.location).toBe('/assets/Tank%40acme/');
  expect((await own.api.get('/assets/Tank@acme/')).body).toEqual({
    id_developer: 'Tank@acme',
    name: 'Tank',
    id_group,
    properties: { litres: 5000 },
    enabled: true,
    owner: 'alice',
    updater: 'alice',
    created_at: own.service.now(),
    updated_at: own.service.now(),
    version: 0,
  });
});

describeResourceContract(own, {
  plural: 'assets',
  label: 'Asset',
  required: async () => ({ id_group: await own.given.group() }),
  optional: { properties: { a: 1 } },
  rules: [propertiesRule],
  parents: { id_group: ['groups', (api) => givenBy(api).group()] },
});

it('replaces properties whole', async () => {
  const id = await own.given.asset({ properties: { a: 1, b: { c: 2 } } });
  expect((await own.api.put(at('assets', id), { properties: { b: {} } })).body.details.properties).toEqual({ b: {} });
  expect((await own.api.get(at('assets', id))).body.properties).toEqual({ b: {} });
});

/** Keys and values that JavaScript, MongoDB or XML make something of (contract 4). */
const nasty = `{"$where":"sleep(1)","a.b":{"c.d":1,"$set":{"x":1}},"_bsontype":"ObjectId","__proto__":{"polluted":true},"":"empty",
  "constructor":{"prototype":{}},"toJSON":1,"toBSON":null,"hasOwnProperty":0,"$ref":"x","$id":1,"_id":7,"length":3,"0":"zero","<a>&\\"'":"<b>&\\"']]>",
  "@":1,"#":2,"!":3,"?":4,"item":[[],[[1]],{},null,"",false,-0.5,1e300,5e-324,9007199254740993],"control":"\\u0001\\u001f\\uffff","lines":"a\\r\\nb\\tc ",
  "accent":"e\\u0301\\u00e9","\\ud83d\\udef0":"\\ud83d\\udef0"}`;

it('stores properties under any key, interprets none and reads them back as given', async () => {
  const id_group = await own.given.group();
  const made = await own.api.post(
    '/assets/',
    `{"name":"nasty","id_group":${JSON.stringify(id_group)},"properties":${nasty}}`,
  );
  expect(summarize(made)).toBe('2001');
  for (const sent of [made, await own.api.put('/assets/nasty@acme/', `{"properties":${nasty}}`)]) {
    expect(sent.status).toBe(200);
    const { text } = await own.api.get('/assets/nasty@acme/');
    // compared as text and by entries: an object would hide what __proto__ does
    const properties = JSON.parse(text, (key, value) => (key === 'properties' ? entries(value) : value)).properties;
    expect(properties).toEqual(entries(JSON.parse(nasty)));
  }
  expect(({} as Record<string, unknown>).polluted).toBeUndefined();
});

function entries(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(entries);
  if (typeof value !== 'object' || value === null) return value;
  return { entries: Object.entries(value).map(([key, inner]) => [key, entries(inner)]) };
}

it('shows properties in XML: entries for keys that are no names, items of arrays, nil for null', async () => {
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
  const id = await own.given.asset({ properties });
  const { text } = await own.api.get(at('assets', id), { Accept: 'application/xml' });
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

it('shows every nasty key in XML that parses', async () => {
  const id = await own.given.asset();
  await own.api.put(at('assets', id), `{"properties":${nasty}}`);
  const { text } = await own.api.get(at('assets', id), { Accept: 'application/xml' });
  expect(XMLValidator.validate(text)).toBe(true);
  for (const part of [
    '<entry key="$where">sleep(1)</entry>',
    '<__proto__><polluted>true</polluted></__proto__>',
    '<entry key="">empty</entry>',
    '<control>\uFFFD\uFFFD\uFFFD</control>',
  ])
    expect(text).toContain(part);
});
