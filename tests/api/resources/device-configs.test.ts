import { createHash } from 'node:crypto';
import { expect, it } from '@jest/globals';
import { XMLParser } from 'fast-xml-parser';
import { summarize, useTestService } from '../../support/expect-status.js';
import { pathOf } from '../../support/service.js';
import { wordsOf } from '../../support/words.js';

const ctx = await useTestService();
let names = 0;
const device = await ctx.fixtures.device();

const path = (...rest: string[]) => pathOf('devices', device, 'deviceconfigs', ...rest);
const base64 = (text: string) => Buffer.from(text).toString('base64');
const sha1 = (bytes: string | Buffer) => createHash('sha1').update(bytes).digest('hex');
const uniqueName = () => `file ${++names}`;
const countFiles = async () => (await ctx.api.get(path())).body.total_documents;
async function upload(fields: object = {}): Promise<string> {
  const name = uniqueName();
  const reply = await ctx.api.post(path(), { name, version: '1', file: base64('0123456789'), ...fields });
  if (summarize(reply) !== '2001') throw new Error(reply.text);
  return name;
}

it('stores a file and returns it with 201', async () => {
  const reply = await ctx.api.post(path(), {
    name: ' boot.cfg ',
    version: '1.0',
    file: 'aGVsbG8=',
    date_deployed: 1700000000.5,
  });
  const details = {
    name: 'boot.cfg',
    version: '1.0',
    file: 'aGVsbG8=',
    size: 5,
    checksum: 'aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d',
    device,
    date_deployed: 1700000000.5,
    owner: 'alice',
    updater: 'alice',
    created_at: ctx.service.now(),
    updated_at: ctx.service.now(),
  };
  expect([reply.status, reply.body]).toEqual([201, { code: 2001, message: 'Device_config created', details }]);
  expect(reply.headers.location).toBe(`${path('boot.cfg', '1.0')}`);
  const { file: _, ...listed } = details;
  expect((await ctx.api.get(path())).body).toEqual({ total_documents: 1, result: [listed] });
  expect((await ctx.api.get(path('boot.cfg', '1.0'), { Accept: 'application/json' })).body).toEqual(details);
});

it.each([
  ['name', ['', ' ', 'n'.repeat(51), '.', '..', ' .. ', 'a/b', 'a\\b', 'a\u0001b', 'a\u0000', '\u2800', null, 5]],
  ['version', ['', 'v'.repeat(51), '.', '..', 'a/b', 'a\\b', 'a\nb', '\ud800', null, 1]],
  [
    'file',
    [...wordsOf('= YQ YQ= YR== YQ=== YQ==YQ== -_-_ ==== Y==='), '', 'Y Q==', 'YQ==\n', '\u00ff', null, 5, ['YQ==']],
  ],
  ['date_deployed', [-1, 'now', '1700000000', true, {}]],
] as const)('rejects invalid values of %s with 4003', async (field, values) => {
  const before = await countFiles();
  const outcomes = [];
  for (const value of values)
    outcomes.push(
      summarize(await ctx.api.post(path(), { name: uniqueName(), version: '1', file: 'YQ==', [field]: value })),
    );
  expect(outcomes).toEqual(values.map(() => `4003 ${field}`));
  expect(await countFiles()).toBe(before);
});

it.each([
  ['name', ['n'.repeat(50), '\u{1F4C4}'.repeat(50), 'a b', '...', '%2F', 'q?a#b', 'x@y']],
  ['version', ['v'.repeat(50), '\u{1F4C4}'.repeat(50), ' 1 ', '...', '%2F', 'q?a#b']],
  ['file', ['YQ==', 'YWI=', 'YWJj', '+/+/', 'AAAA']],
  ['date_deployed', [0, 1.25]],
] as const)('accepts valid values of %s and finds the file under its name and version', async (field, values) => {
  for (const value of values) {
    const body = { name: uniqueName(), version: '1', file: 'YQ==', [field]: value };
    expect([value, summarize(await ctx.api.post(path(), body))]).toEqual([value, '2001']);
    expect((await ctx.api.get(path(String(body.name), body.version), { Accept: 'application/json' })).body[field]).toBe(
      value,
    );
  }
});

it('treats a null date as absent, ignores read-only fields and reports all invalid fields together', async () => {
  const readOnly = {
    size: 7,
    checksum: 'x',
    device: 'other@acme',
    owner: 'm',
    updater: 'm',
    created_at: 1,
    updated_at: 1,
  };
  const name = await upload({ date_deployed: null, ...readOnly });
  const { body } = await ctx.api.get(path(name), { Accept: 'application/json' });
  expect(body).toMatchObject({
    size: 10,
    checksum: sha1('0123456789'),
    device,
    owner: 'alice',
    created_at: ctx.service.now(),
  });
  expect('date_deployed' in body).toBe(false);
  expect(summarize(await ctx.api.post(path(), { color: 1, date_deployed: 'x', version: '..' }))).toBe(
    '4003 color date_deployed file name version',
  );
});

it('names the rule that a version of dots breaks', async () => {
  const reply = await ctx.api.post(path(), { name: uniqueName(), version: '.', file: 'YQ==' });
  expect(reply.body.details).toEqual({ version: 'must be without / \\ and control characters, and not . or ..' });
});

it('rejects a name and version that the device already has', async () => {
  const name = await upload();
  const again = { name, version: '1', file: 'YWJj' };
  const reply = await ctx.api.post(path(), again);
  expect([summarize(reply), reply.body.details.version]).toEqual(['4003 version', expect.stringMatching(/./)]);
  expect((await ctx.api.get(path(name, '1'))).text ?? '').toBe('');
  expect((await ctx.api.get(path(name, '1'), { Accept: 'application/json' })).body.size).toBe(10);
  expect(summarize(await ctx.api.post(path(), { ...again, version: '2' }))).toBe('2001');
  const other = await ctx.fixtures.device();
  expect(summarize(await ctx.api.post(pathOf('devices', other, 'deviceconfigs'), again))).toBe('2001');
});

it('serves the decoded bytes as a download', async () => {
  const bytes = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
  const name = await upload({ file: bytes.toString('base64') });
  const { status, headers, body } = await ctx.api.get(path(name, '1'));
  expect([status, Buffer.from(body).equals(bytes)]).toEqual([200, true]);
  expect(headers).toMatchObject({
    'content-type': 'application/octet-stream',
    'content-disposition': `attachment; filename="${name}"`,
    'content-length': '256',
    'accept-ranges': 'bytes',
    etag: `"${sha1(bytes)}"`,
  });
});

it.each([
  ['n\u00e4me.cfg', /filename\*=UTF-8''n%C3%A4me\.cfg/],
  ['\u{1F4C4}.cfg', /filename\*=UTF-8''%F0%9F%93%84\.cfg/],
  ['q"uo;te', /^attachment; filename="q\\"uo;te"$/],
  ['\u65e5\u672c', /filename\*=UTF-8''%E6%97%A5%E6%9C%AC/],
])('sends the file name %s in Content-Disposition', async (name, expected) => {
  await ctx.api.post(path(), { name, version: '1', file: 'YQ==' });
  expect((await ctx.api.get(path(name))).headers['content-disposition']).toMatch(expected);
});

it.each<[range: string, status: number, part: string, shown: string | undefined]>([
  ['bytes=0-0', 206, '0', 'bytes 0-0/10'],
  ['bytes=2-4', 206, '234', 'bytes 2-4/10'],
  ['bytes=7-', 206, '789', 'bytes 7-9/10'],
  ['bytes=-3', 206, '789', 'bytes 7-9/10'],
  ['bytes=0-999', 206, '0123456789', 'bytes 0-9/10'],
  ['bytes=-999', 206, '0123456789', 'bytes 0-9/10'],
  ['bytes=10-', 416, '', 'bytes */10'],
  ['bytes=10-20', 416, '', 'bytes */10'],
  ['bytes=-0', 416, '', 'bytes */10'],
  ['bytes=5-2', 200, '0123456789', undefined],
  ['bytes=0-1,4-5', 200, '0123456789', undefined],
  ['lines=1-2', 200, '0123456789', undefined],
  ['nonsense', 200, '0123456789', undefined],
])('answers Range: %s with %i %j', async (Range, status, part, shown) => {
  const reply = await ctx.api.get(path(await upload()), { Range });
  expect([reply.status, reply.headers['content-range'], bytesOf(reply)]).toEqual([status, shown, part]);
});

function bytesOf({ body, text }: { body: unknown; text?: string }): string {
  return Buffer.isBuffer(body) ? body.toString() : (text ?? '');
}

it('answers a range only if If-Range matches', async () => {
  const name = await upload();
  const Range = 'bytes=0-0';
  expect((await ctx.api.get(path(name), { Range, 'If-Range': `"${sha1('0123456789')}"` })).status).toBe(206);
  expect((await ctx.api.get(path(name), { Range, 'If-Range': '"other"' })).status).toBe(200);
});

it('answers 304 if If-None-Match matches', async () => {
  const name = await upload();
  const etag = `"${sha1('0123456789')}"`;
  for (const candidate of [etag, `W/${etag}`, `"x", ${etag}`, etag.replace(/"$/, '-gzip"'), '*']) {
    const reply = await ctx.api.get(path(name, '1'), { 'If-None-Match': candidate });
    expect([candidate, reply.status, reply.headers.etag, bytesOf(reply)]).toEqual([candidate, 304, etag, '']);
  }
  expect((await ctx.api.get(path(name, '1'), { 'If-None-Match': '"x"' })).status).toBe(200);
});

it.each([
  [undefined, 'file'],
  ['*/*', 'file'],
  ['application/octet-stream', 'file'],
  ['text/html, */*;q=0.1', 'file'],
  ['application/json', 'json'],
  ['text/html, application/json;q=0.5', 'json'],
  ['application/xml', 'xml'],
  ['text/xml', 'xml'],
  ['application/json;q=0.5, application/xml', 'xml'],
  ['application/json, application/xml', 'json'],
])('answers Accept %s with the %s', async (accept, expected) => {
  const reply = await ctx.api.get(path(await upload()), accept === undefined ? {} : { Accept: accept });
  const types: Record<string, string> = {
    file: 'application/octet-stream',
    json: 'application/json; charset=utf-8',
    xml: 'application/xml; charset=utf-8',
  };
  expect([reply.status, reply.headers['content-type']]).toEqual([200, types[expected]]);
  if (expected === 'file') expect(bytesOf(reply)).toBe('0123456789');
  if (expected === 'json') expect(reply.body.file).toBe(base64('0123456789'));
  if (expected === 'xml')
    expect(new XMLParser().parse(reply.text).deviceconfig).toMatchObject({ file: base64('0123456789'), size: 10 });
});

it('serves the version created last when the path names none', async () => {
  const name = uniqueName();
  const latest = async () => bytesOf(await ctx.api.get(path(name)));
  await ctx.api.post(path(), { name, version: '9', file: base64('first') });
  await ctx.api.post(path(), { name, version: '1', file: base64('second, at the same time') });
  expect(await latest()).toBe('second, at the same time');
  ctx.service.advance(1);
  await ctx.api.post(path(), { name, version: '5', file: base64('third'), date_deployed: 1 });
  expect(await latest()).toBe('third');
  expect(bytesOf(await ctx.api.get(path(name, '9')))).toBe('first');
});

it.each<[string, () => string, string]>([
  ['an unknown file', () => path('nope'), '4041'],
  ['an unknown version', () => path('boot.cfg', '7'), '4041'],
  ['an unknown device', () => pathOf('devices', 'nobody@acme', 'deviceconfigs', 'boot.cfg'), '4041'],
  ['the list of an unknown device', () => pathOf('devices', 'nobody@acme', 'deviceconfigs'), '4041'],
  ['an unknown parameter', () => `${path('boot.cfg')}?x=1`, '4004 x'],
])('rejects a request for %s', async (_, target, expected) => {
  expect(summarize(await ctx.api.get(target(), { Accept: 'application/json' }))).toBe(expected);
});
