import { beforeEach, describe, expect, it } from '@jest/globals';
import { parseXmlStreams } from '../../../src/streams/parse-xml.js';
import { summarize, useTestService } from '../../support/expect-status.js';
import { pathOf, type Reply } from '../../support/service.js';
import { wordsOf } from '../../support/words.js';

/** XML bodies of streams (reference/streams.md#xml-bodies). */
const ctx = await useTestService();
let id_group = '';
let device = '';
let path = '';

id_group = await ctx.fixtures.group();
beforeEach(async () => {
  device = await ctx.fixtures.device({ id_group });
  path = pathOf('devices', device, 'streams');
});

function send(target: string, body: string | Buffer, type = 'application/xml', method = 'POST'): Promise<Reply> {
  return ctx.api.send(method, target, { 'Content-Type': type }, body);
}
const listStreams = async () => (await ctx.api.get(`${path}?sort=at`)).body.result;
const dataOf = async () => (await listStreams()).map(({ data }: { data: unknown }) => data);
/** Sends one stream with these children of `data`. @returns the stored data, or the answer in short */
async function store(content: string): Promise<unknown> {
  const reply = await send(path, `<stream><data>${content}</data></stream>`);
  return reply.body.code === 2001 ? (await dataOf()).at(-1) : summarize(reply);
}

it('stores one stream, to each path and under each label', async () => {
  const key = 'k'.repeat(40);
  await ctx.api.put(pathOf('devices', device), { checksum: key });
  const body = `<?xml version="1.0" encoding="UTF-8"?>
    <!-- as old firmware sends it --><stream xmlns="urn:x" version="1"><protocol>v2</protocol><at>1000.5</at>
      <device>${device}</device><checksum>none</checksum><data><t>21.5</t></data></stream>`;
  expect((await send('/streams/', body)).text).toBe('{ "response": "OK" }');
  expect((await send('/status', body, 'text/xml; charset=utf-8')).text).toBe('{ "response": "OK" }');
  const own = '<stream><_t>sta</_t><at>1001</at><checksum/><data><t>é</t></data></stream>';
  expect((await send(path, own, 'Application/Vnd.Old+XML;q=7')).body.code).toBe(2001);
  expect(await listStreams()).toMatchObject([
    { _t: 'str', protocol: 'v2', at: 1000.5, data: { t: '21.5' } },
    { _t: 'sta', protocol: 'v2', at: 1000.5, data: { t: '21.5' } },
    { _t: 'sta', protocol: 'http', at: 1001, data: { t: 'é' } },
  ]);
});

it('stores several streams, all or none', async () => {
  const one = (n: number) => `<stream><at>${n}</at><data><n>${n}</n></data></stream>`;
  expect((await send(path, `<streams>\n ${one(1)}\n ${one(2)}</streams>`)).body.code).toBe(2001);
  expect(await dataOf()).toEqual([{ n: '1' }, { n: '2' }]);
  const faulty = await send(path, `<streams>${one(3)}<stream><at>soon</at><data>7</data></stream></streams>`);
  expect(summarize(faulty)).toBe('4003 1.at 1.data');
  expect(summarize(await send(path, '<streams/>'))).toBe('4003 streams');
  expect(summarize(await send(path, `<streams>${'<stream><data/></stream>'.repeat(1001)}</streams>`))).toBe(
    '4003 streams',
  );
  expect(await dataOf()).toHaveLength(2);
});

describe('data', () => {
  it.each<[string, unknown]>([
    ['', {}],
    [' \n\t', {}],
    ['<a/>', { a: '' }],
    ['<a></a><b> </b>', { a: '', b: ' ' }],
    ['<a>1</a><b>true</b><c>null</c>', { a: '1', b: 'true', c: 'null' }],
    ['<a nil="true"/><b nil="true">x</b><c nil="false"/><d nil="1"/>', { a: null, b: null, c: '', d: '' }],
    ['<a><item>1</item><item/></a>', { a: ['1', ''] }],
    ['<a><item nil="true"/><item><b>2</b></item><item><item>3</item></item></a>', { a: [null, { b: '2' }, ['3']] }],
    ['<a><item>1</item><b>2</b></a>', { a: { item: '1', b: '2' } }],
    ['<a><entry key="item">1</entry></a>', { a: { item: '1' } }],
    ['<entry key="a b">1</entry><entry key="">2</entry><entry>3</entry>', { 'a b': '1', '': '2', entry: '3' }],
    ['<entry key="$where">1</entry><entry key="é.&lt;&#10;">2</entry>', { $where: '1', 'é.<\n': '2' }],
    ['<a>1</a><a>2</a>', { a: '2' }],
    ['<a>&lt;&gt;&amp;&quot;&apos;&#233;&#x1F6F0;</a>', { a: '<>&"\'é\u{1F6F0}' }],
    ['<a>1<!-- x -->2<?pi y?>3<![CDATA[<&]]></a>', { a: '123<&' }],
    ['<a unit="°C" key="k" xml:lang="en">5</a>', { a: '5' }],
    ['<x:a xmlns:x="urn:x">5</x:a>', { 'x:a': '5' }],
    ['<constructor>1</constructor><toJSON>2</toJSON>', { constructor: '1', toJSON: '2' }],
  ])('%s', async (content, expected) => {
    expect(await store(content)).toEqual(expected);
  });

  it('holds __proto__ like any other key', async () => {
    await store('<__proto__><polluted>1</polluted></__proto__>');
    const { text } = await ctx.api.get(path);
    expect(text).toContain('"data":{"__proto__":{"polluted":"1"}}');
    expect(({} as Record<string, unknown>).polluted).toBeUndefined();
  });

  it('is read back from what the service shows in XML', async () => {
    const data = { text: 'a\r\nb', list: ['1', ['x'], { item: '2', b: '' }], 'a b': null, xmlKey: ' ', '': '<&>' };
    await ctx.api.post(path, { data });
    const shown = await ctx.api.get(path, { accept: 'application/xml' });
    const [content = ''] = /<data>.*<\/data>/s.exec(shown.text) ?? [];
    expect((await send(path, `<stream>${content}</stream>`)).body.code).toBe(2001);
    expect(await dataOf()).toEqual([data, data]);
  });
});

it.each([
  ...wordsOf(`
    text {"data":{}} <stream><data/> <stream><data></stream> <stream/><stream/> <stream/>x <data/> <Stream><data/></Stream>
    <streams><data/></streams> <streams><stream><data/></stream><item/></streams>
    <streams>x<stream><data/></stream></streams> <stream>x<data/></stream> <stream>x</stream>
    <stream><data>x<a/></data></stream> <stream><data><a>&nbsp;</a></data></stream>
    <stream><data><a>&#0;</a></data></stream>
  `),
  '',
  ' ',
  '<x:stream xmlns:x="urn:x"><data/></x:stream>',
  '<!DOCTYPE stream><stream><data/></stream>',
  '<!DOCTYPE stream [<!ENTITY e "x">]><stream><data><a>&e;</a></data></stream>',
  '<!DOCTYPE stream SYSTEM "http://127.0.0.1:1/x.dtd"><stream><data/></stream>',
  '<stream><data><a b="1" b="2"/></data></stream>',
  '<stream><data><a b=1/></data></stream>',
  '<?xml version="1.0" encoding="ISO-8859-1"?><stream><data/></stream>',
  '<?xml version="1.0" encoding="UTF-16"?><stream><data/></stream>',
  `<stream><data><a ${Array.from({ length: 101 }, (_, n) => `a${n}=""`).join(' ')}/></data></stream>`,
])('%j is 4001', async (body) => {
  const reply = await send(path, body);
  expect([reply.status, reply.body]).toEqual([400, { code: 4001, message: 'Json bad formed', details: {} }]);
  expect((await send('/streams/', body)).body.code).toBe(4001);
});

it('is UTF-8 only', async () => {
  const document = '<stream><data><a>é</a></data></stream>';
  for (const body of [Buffer.from(document, 'latin1'), Buffer.from(`\ufeff${document}`, 'utf16le')])
    expect(summarize(await send(path, body))).toBe('4001');
  expect((await send(path, `\ufeff<?xml version="1.0" encoding="utf-8"?>${document}`)).body.code).toBe(2001);
  expect(await dataOf()).toEqual([{ a: 'é' }]);
});

it('has the limits of JSON', async () => {
  // the outermost object, `data`, and the objects in it
  const nested = (levels: number) => `${'<a>'.repeat(levels)}1${'</a>'.repeat(levels)}`;
  expect(await store(nested(16))).not.toBe('4003 data');
  expect(await store(nested(17))).toBe('4003 data');
  expect(await store(nested(31))).toBe('4003 data');
  expect(await store(nested(32))).toBe('4001');
  const values = (count: number) => `<stream><data>${'<a/>'.repeat(count - 2)}</data></stream>`;
  expect((await send(path, values(50_000))).body.code).toBe(2001);
  const tooMany = await send(path, values(50_001));
  expect(tooMany.body).toEqual({
    code: 4003,
    message: 'validation error',
    details: { body: 'must not have more than 50000 JSON values' },
  });
  const distinct = (count: number) => `<l>${'<item/>'.repeat(count)}</l>`;
  expect(await store(distinct(4_998))).toMatchObject({ l: expect.any(Array) });
  expect(await store(distinct(4_999))).toBe('4003 data');
  expect(await store(`<a>${'x'.repeat(65_536)}</a>`)).toBe('4003 data');
  expect((await send(path, `<stream><data/>${' '.repeat(1024 * 1024)}</stream>`)).body.code).toBe(4131);
});

it('reports wrong fields as for JSON', async () => {
  const reply = await send(
    '/streams/',
    '<stream><at>soon</at><data>1</data><colour>red</colour><_t><a/></_t></stream>',
  );
  expect(summarize(reply)).toBe('4003 _t at colour data device');
  expect(summarize(await send('/streams/', '<stream nil="true"/>'))).toBe('4003 data device');
  expect(summarize(await send(path, '<stream><data nil="true"/></stream>'))).toBe('4003 data');
  expect(summarize(await send(path, '<stream><data><item>1</item></data></stream>'))).toBe('4003 data');
  for (const field of ['protocol', 'at', 'checksum', 'device'])
    expect([field, summarize(await send('/streams/', `<stream><${field}><a/></${field}></stream>`))]).toEqual([
      field,
      `4003 ${[...new Set(['data', 'device', field])].sort().join(' ')}`,
    ]);
});

it('is JSON under any other label, and everywhere else', async () => {
  for (const type of ['text/plain', 'application/xhtml', 'xml', 'application/x-www-form-urlencoded'])
    expect((await send(path, '{"data":{}}', type)).body.code).toBe(2001);
  for (const type of ['application/xml', 'text/xml'])
    expect((await send('/projects/', `{"name":"${type}","id_customer":"c"}`, type)).body.code).toBe(2001);
  expect((await send(path, '{"_t":"sta"}', 'application/xml', 'DELETE')).body.code).toBe(2004);
  expect(summarize(await send('/projects/', '<project/>'))).toBe('4001');
});

it('lets other requests proceed while it is parsed, and text may span the pieces', async () => {
  const text = '\u{1F6F0}&amp;\r\n'.repeat(60_000);
  let yields = 0;
  const parsed = await parseXmlStreams(Buffer.from(`<stream><data><a>${text}</a></data></stream>`), async () => {
    yields++;
  });
  expect(parsed.value).toEqual({ data: { a: '\u{1F6F0}&\n'.repeat(60_000) } });
  // 540,000 characters in pieces of 32,768
  expect(yields).toBe(16);
});
