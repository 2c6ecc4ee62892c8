import { expect, it } from '@jest/globals';
import { XMLParser, XMLValidator } from 'fast-xml-parser';
import { useTestService } from '../../support/expect-status.js';
import { pathOf } from '../../support/service.js';

const ctx = await useTestService();
const Accept = 'application/xml';
const parser = new XMLParser({ parseTagValue: false, ignoreDeclaration: true, trimValues: false, htmlEntities: true });

/** Requests XML and parses it to nested texts. */
async function read(path: string, method = 'GET', body?: object): Promise<unknown> {
  const { text, headers } = await ctx.api.send(method, path, { Accept }, body && JSON.stringify(body));
  expect(headers['content-type']).toBe('application/xml; charset=utf-8');
  expect(XMLValidator.validate(text)).toBe(true);
  return parser.parse(text);
}

/** Converts JSON to the texts that the parser reads from XML; callers handle arrays. */
function toTexts(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return String(value ?? '');
  if (Object.keys(value).length === 0) return '';
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, toTexts(inner)]));
}

it.each(['project', 'service', 'group', 'asset', 'device', 'model'] as const)(
  'shows, lists, updates and deletes a %s as in JSON',
  async (type) => {
    const withProperties = type === 'asset' || type === 'device' || type === 'model';
    const fields = {
      description: ' <b>&amp;\r\n"\u{1F6F0}" ]]> ',
      enabled: 0,
      ...(withProperties && { properties: { a: { b: 1.5 }, c: false } }),
    };
    const location = { lon: -0.5, lat: 40, networking: { type: 'wifi', conn_address: '::1' } };
    const id = await ctx.fixtures[type]({ ...fields, ...(type === 'device' && location) });
    const path = pathOf(`${type}s`, id);
    const { body } = await ctx.api.get(path);
    expect(await read(path)).toEqual({ [type]: toTexts(body) });
    const list = `/${type}s/?name=${encodeURIComponent(body.name)}`;
    expect(await read(list)).toEqual({ response: { total_documents: '1', result: { [type]: toTexts(body) } } });
    const labels = {
      project: 'Project',
      service: 'Service',
      group: 'Group',
      asset: 'Asset',
      device: 'Device',
      model: 'model',
    };
    expect(await read(path, 'PUT', { enabled: 1 })).toEqual({
      response: {
        code: '2005',
        message: `${labels[type]} updated`,
        details: toTexts({ ...body, enabled: true, version: 1 }),
      },
    });
    expect(await read(path, 'DELETE')).toEqual({
      response: { code: '2004', message: `${labels[type]} deleted`, details: '' },
    });
    expect(await read(list)).toEqual({ response: { total_documents: '0', result: '' } });
  },
);

it('lists several objects in one <result>, in order', async () => {
  for (const name of ['b', 'a', 'c']) await ctx.fixtures.project({ name, id_customer: 'listed' });
  const { response } = (await read('/projects/?id_customer=listed')) as {
    response: { result: { project: { name: string }[] } };
  };
  expect(response.result.project.map(({ name }) => name)).toEqual(['a', 'b', 'c']);
});

it.each<[string, string, string, object | undefined, string]>([
  ['4001', 'POST', '/projects/', undefined, '<code>4001</code><message>Json bad formed</message><details/>'],
  [
    '4003',
    'POST',
    '/models/',
    { name: 5 },
    '<code>4003</code><message>validation error</message><details><name>must be a text</name></details>',
  ],
  [
    '4003 of a nested field',
    'POST',
    '/devices/',
    { name: 'd', type: 't', id_group: 'a@b', networking: { type: 'x' } },
    '<networking.type>',
  ],
  [
    '4003 of a field that is not an XML name',
    'POST',
    '/models/',
    { name: 'x', '1 <&"': 1 },
    '<details><entry key="1 &lt;&amp;&quot;">unknown field</entry></details>',
  ],
  [
    '4003 of a field with an empty name',
    'POST',
    '/models/',
    { name: 'x', '': 1 },
    '<details><entry key="">unknown field</entry></details>',
  ],
  [
    '4004',
    'GET',
    '/projects/?max=0',
    undefined,
    '<code>4004</code><message>format parameter invalid</message><details><max>',
  ],
  [
    '4004 of a parameter that is not an XML name',
    'GET',
    '/projects/?a[$gt]=1',
    undefined,
    '<details><entry key="a[$gt]">',
  ],
  ['4041', 'GET', '/projects/nobody@acme/', undefined, '<code>4041</code><message>not found</message><details/>'],
  ['4051', 'PUT', '/projects/', undefined, '<code>4051</code>'],
])('answers %s in XML', async (_, method, path, body, part) => {
  const { text } = await ctx.api.send(method, path, { Accept }, body && JSON.stringify(body));
  expect(XMLValidator.validate(text)).toBe(true);
  expect(text).toMatch(/^<\?xml version="1\.0" encoding="UTF-8"\?>\s*<response><code>/);
  expect(text).toContain(part);
});

it('answers 4005 in XML with the stored version', async () => {
  const path = pathOf('projects', await ctx.fixtures.project());
  expect(await read(path, 'PUT', { version: 7 })).toEqual({
    response: { code: '4005', message: 'concurrency error', details: { version: '0' } },
  });
});

it('replaces characters that XML 1.0 forbids and escapes the others', async () => {
  const controls = Array.from({ length: 0x20 }, (_, code) => String.fromCharCode(code))
    .slice(1)
    .join('');
  const description = `${controls}\u007f\ufffe\uffff<>&"'\u{10FFFF}`;
  const { text } = await ctx.api.get(pathOf('models', await ctx.fixtures.model({ description })), { Accept });
  const [, shown] = /<description>(.*)<\/description>/s.exec(text) ?? [];
  const allowed = /[\t\n\r\u{20}-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/u;
  const expected = [...description].map((char) => (allowed.test(char) ? char : '\ufffd')).join('');
  const entities: Record<string, string> = {
    '&lt;': '<',
    '&gt;': '>',
    '&amp;': '&',
    '&quot;': '"',
    '&apos;': "'",
    '&#13;': '\r',
    '&#xD;': '\r',
  };
  expect(shown?.replaceAll(/&[^;]+;/g, (entity) => entities[entity] ?? entity)).toBe(expected);
  expect((await ctx.api.get('/models/')).body.result.at(-1).description).toBe(description);
});
