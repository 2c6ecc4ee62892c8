import { deflateSync, gzipSync } from 'node:zlib';
import { describe, expect, it } from '@jest/globals';
import { openRawClient } from '../../former-platform/raw-client.js';
import { summarize, useTestService } from '../../support/expect-status.js';
import { type Api, pathOf, type Reply } from '../../support/service.js';
import { wordsOf } from '../../support/words.js';

const ctx = await useTestService();
const json = 'application/json; charset=utf-8';
const xml = 'application/xml; charset=utf-8';
const project = await ctx.fixtures.project();

it.each([
  [undefined, json],
  ['application/json', json],
  ['application/xml', xml],
  ['text/xml', xml],
  ['APPLICATION/XML', xml],
  ['application/xml; charset=utf-8', xml],
  ['application/soap+xml', xml],
  ['application/atom+xml;q=0.9, application/json;q=0.8', xml],
  ['*/*', json],
  ['application/*', json],
  ['application/xml, application/json', json],
  ['application/json;q=0.5, application/xml;q=0.5', json],
  ['application/xml;q=0.5, */*;q=0.8', json],
  ['application/xml, */*;q=0.8', xml],
  ['application/xml;q=0', json],
  ['text/html', json],
  ['image/png;q=1', json],
  ['nonsense', json],
  ['', json],
])('answers Accept: %j with %s, errors included', async (accept, type) => {
  const headers: Record<string, string> = accept === undefined ? {} : { Accept: accept };
  const replies: [Promise<Reply>, number][] = [
    [ctx.api.get('/projects/', headers), 200],
    [ctx.api.get(pathOf('projects', project), headers), 200],
    [ctx.api.get('/types/', headers), 200],
    [ctx.api.post('/projects/', {}, headers), 400],
    [ctx.api.get('/projects/nobody@acme/', headers), 404],
    [ctx.service.clientWith('wrong').get('/projects/', headers), 401],
    [ctx.api.send('PUT', '/projects/', headers), 405],
  ];
  for (const [pending, expected] of replies) {
    const reply = await pending;
    expect([reply.status, reply.headers['content-type']]).toEqual([expected, type]);
    expect(reply.headers.vary).toMatch(/\bAccept\b/);
    expect(reply.text).toMatch(type === xml ? /^<\?xml version="1\.0" encoding="UTF-8"\?>/ : /^\{/);
  }
});

describe('methods', () => {
  it('answers HEAD like GET, without a body', async () => {
    const id = await ctx.fixtures.device();
    await ctx.api.post(pathOf('devices', id, 'deviceconfigs'), { name: 'f', version: '1', file: 'YWJj' });
    const paths = [
      '/projects/',
      pathOf('projects', project),
      pathOf('devices', id),
      pathOf('devices', id, 'deviceconfigs'),
      pathOf('devices', id, 'deviceconfigs', 'f'),
      '/types/',
      '/projects/nobody@acme/',
      '/projects/?x=1',
      '/nothing/',
    ];
    for (const [path, encoding] of paths.flatMap((one) => [[one, 'identity'] as const, [one, 'gzip'] as const])) {
      const headers = { 'Accept-Encoding': encoding };
      const [got, head] = [await ctx.api.get(path, headers), await ctx.api.send('HEAD', path, headers)];
      const compared = ({ status, headers }: Reply) => [
        path,
        status,
        headers['content-type'],
        headers['content-length'],
        headers.etag,
      ];
      expect(compared(head)).toEqual(compared(got));
      expect(head.text ?? '').toBe('');
    }
  });

  const resourceMethods = 'DELETE, GET, HEAD, OPTIONS, PATCH, POST';
  const collectionMethods = 'GET, HEAD, OPTIONS, POST';
  const itemMethods = 'DELETE, GET, HEAD, OPTIONS, PUT';
  const readMethods = 'GET, HEAD, OPTIONS';
  it.each([
    ...['projects', 'services', 'groups', 'assets', 'devices', 'models'].flatMap((plural) => [
      [`/${plural}/`, resourceMethods],
      [`/${plural}/a@b/`, itemMethods],
    ]),
    ['/projects/a@b/services/', readMethods],
    ['/projects/a@b/services/c@d/', readMethods],
    ['/services/a@b/groups/', readMethods],
    ['/services/a@b/groups/c@d/', readMethods],
    ['/groups/a@b/assets/', readMethods],
    ['/groups/a@b/assets/c@d/', readMethods],
    ['/groups/a@b/devices/', readMethods],
    ['/groups/a@b/devices/c@d/', readMethods],
    ['/assets/a@b/devices/', readMethods],
    ['/assets/a@b/devices/c@d/', readMethods],
    ['/devices/a@b/deviceconfigs/', collectionMethods],
    ['/devices/a@b/deviceconfigs/f/', readMethods],
    ['/devices/a@b/deviceconfigs/f/1/', readMethods],
    ['/types/', readMethods],
    ['/sensors/', readMethods],
    ['/time_zones/', readMethods],
    ['/locales/', readMethods],
    ['/self/', readMethods],
    ['/apikeys/', collectionMethods],
    ['/apikeys/x/', 'DELETE, OPTIONS'],
    ['/alarms/', 'GET, HEAD, OPTIONS, PATCH'],
    ['/alarms/counts/', readMethods],
    ['/alarms/x/', 'GET, HEAD, OPTIONS, PUT'],
    ['/devices/a@b/alarms/', readMethods],
    ['/alarmrules/', collectionMethods],
    ['/alarmrules/a@b/', 'DELETE, GET, HEAD, OPTIONS, PUT'],
    ['/webhooks/', collectionMethods],
    ['/webhooks/a@b/', 'DELETE, GET, HEAD, OPTIONS, PUT'],
    ['/webhooks/a@b/secret/', 'OPTIONS, POST'],
    ['/webhooks/a@b/test/', 'OPTIONS, POST'],
    ['/webhooks/a@b/deliveries/', readMethods],
    ['/webhooks/a@b/deliveries/69214e6f0000000100/retry/', 'OPTIONS, POST'],
  ])('allows on %s: %s; lists them for OPTIONS without a key and with 405', async (path, expected) => {
    const allow = ({ headers }: Reply) => headers.allow?.split(', ').sort().join(', ');
    const options = await ctx.service.clientWith(undefined).send('OPTIONS', path);
    expect([options.status, options.text, allow(options)]).toEqual([204, '', expected]);
    for (const method of ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'PATCH', 'TRACE', 'PROPFIND'].filter(
      (method) => !expected.includes(method),
    )) {
      const reply = await ctx.api.send(method, path);
      expect([method, reply.status, allow(reply)]).toEqual([method, 405, expected]);
      if (method !== 'HEAD') expect(summarize(reply)).toBe('4051');
    }
  });
});

it.each(
  wordsOf(`
  / /nothing/ /Projects/ /projects/a@b/nothing/ /projects/a@b/groups/ /devices/a@b/deviceconfigs/f/1/2/ /time-zones/
  /projects/%2e%2e/types/x
`),
)('answers 4041 for the unknown path %s', async (path) => {
  for (const method of ['GET', 'POST', 'PUT', 'DELETE', 'PATCH'])
    expect(summarize(await ctx.api.send(method, path))).toBe('4041');
});

it('accepts paths with and without the closing slash', async () => {
  const id = await ctx.fixtures.device();
  await ctx.api.post(pathOf('devices', id, 'deviceconfigs').slice(0, -1), { name: 'f', version: '1', file: 'YWJj' });
  const id_service = await ctx.fixtures.service({ id_project: project });
  const paths = [
    '/projects/',
    pathOf('projects', project),
    pathOf('projects', project, 'services'),
    pathOf('projects', project, 'services', id_service),
    pathOf('devices', id, 'deviceconfigs'),
    pathOf('devices', id, 'deviceconfigs', 'f', '1'),
    '/types/',
    '/apikeys/',
    '/projects/?max=1',
    '/nothing/',
  ];
  for (const path of paths) {
    const [withSlash, without] = [await ctx.api.get(path), await ctx.api.get(path.replace(/\/(\?|$)/, '$1'))];
    expect([path, without.status, without.text, without.body]).toEqual([
      path,
      withSlash.status,
      withSlash.text,
      withSlash.body,
    ]);
  }
  const body = { name: 'no slash', id_customer: 'c' };
  expect(summarize(await ctx.api.post('/projects', body))).toBe('2001');
  expect(summarize(await ctx.api.put('/projects/no%20slash@acme', {}))).toBe('2005');
  expect(summarize(await ctx.api.delete('/projects/no%20slash@acme'))).toBe('2004');
});

it('sends a unique X-Request-Id with every response', async () => {
  const { etag = '' } = (await ctx.api.get(pathOf('projects', project))).headers;
  const replies = [
    await ctx.api.get('/projects/'),
    await ctx.api.get(pathOf('projects', project), { 'If-None-Match': etag }),
    await ctx.api.post('/projects/', '{'),
    await ctx.api.get('/nothing/'),
    await ctx.api.send('PUT', '/projects/'),
    await ctx.service.clientWith(undefined).get('/projects/'),
    await ctx.service.clientWith(undefined).send('OPTIONS', '/projects/'),
    await ctx.api.send('HEAD', '/projects/', { 'X-Request-Id': 'mine' }),
  ];
  expect(replies.map(({ status }) => status)).toEqual([200, 304, 400, 404, 405, 401, 204, 200]);
  const ids = replies.map(({ headers }) => headers['x-request-id']);
  expect(ids.filter((id) => !/^[0-9a-f-]{36}$/.test(id ?? ''))).toEqual([]);
  expect(new Set(ids).size).toBe(ids.length);
});

describe('what is no HTTP', () => {
  /** Sends bytes, and reads so many answers. */
  async function exchange(bytes: string, count = 1) {
    const client = openRawClient(ctx.service.url);
    client.write(bytes);
    const answers: [status: number, body: unknown][] = [];
    while (answers.length < count) {
      const { status, headers, body } = await client.answer();
      expect(headers).toMatchObject({ 'x-request-id': expect.stringMatching(/^[\da-f-]{36}$/), 'content-type': json });
      answers.push([Number(status.split(' ')[1]), JSON.parse(body)]);
    }
    expect(await client.closed()).toBe('');
    return answers;
  }
  const malformed = (details: object) => [400, { code: 4004, message: 'format parameter invalid', details }];
  const chunked = 'POST /projects/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n';
  const healthy = 'GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n';
  const ok = [200, { status: 'ok' }];

  it.each([
    ['NONSENSE\r\n\r\n', 'Invalid method encountered'],
    ['GET /\u00e9 HTTP/1.1\r\nHost: a\r\n\r\n', 'Invalid char in url path'],
    ['GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n', 'Invalid character in Content-Length'],
    [`${chunked}x\r\n`, 'Invalid character in chunk size'],
  ])('answers %j with a numbered body', async (bytes, reason) => {
    expect(await exchange(bytes)).toEqual([malformed({ request: `must be HTTP: ${reason}` })]);
  });

  it('answers 4311 and 4131 for too many headers and too long a chunk, after the requests before', async () => {
    const long = 'y'.repeat(20_000);
    const answers = await exchange(`${healthy.repeat(20)}GET / HTTP/1.1\r\nHost: a\r\nx: ${long}\r\n\r\n`, 21);
    expect(answers).toEqual([...Array(20).fill(ok), [431, { code: 4311, message: 'headers too large', details: {} }]]);
    const tooLarge = [413, { code: 4131, message: 'body too large', details: {} }];
    expect(await exchange(`${healthy}${chunked}1;${long}\r\n`, 2)).toEqual([ok, tooLarge]);
  });

  it('answers a request without Host, and takes an unknown expectation for none', async () => {
    const closing = 'Connection: close\r\n\r\n';
    expect(await exchange(`GET /healthz HTTP/1.1\r\n${closing}`)).toEqual([malformed({ host: 'is required' })]);
    expect(await exchange(`GET /healthz HTTP/1.0\r\n${closing}`)).toEqual([ok]);
    expect(await exchange(`GET /healthz HTTP/1.1\r\nHost: a\r\nExpect: more\r\n${closing}`)).toEqual([ok]);
  });
});

describe('bodies', () => {
  const projectBody = (name: string) => JSON.stringify({ name, id_customer: 'c', description: 'd\u00e9' });
  const post = (body: string | Buffer, headers = {}) => ctx.api.send('POST', '/projects/', headers, body);
  const nested = (depth: number) => `${'['.repeat(depth)}${']'.repeat(depth)}`;

  it.each<[string, string | Buffer | undefined]>([
    ['no body', undefined],
    ['an empty body', ''],
    ['white space', '  \n'],
    ['an array', '[]'],
    ['an array with an object', '[{"name":"a","id_customer":"c"}]'],
    ['null', 'null'],
    ['a string', '"x"'],
    ['a number', '5'],
    ['half an object', '{"name":'],
    ['two objects', '{}{}'],
    ['single quotes', "{'name':'a'}"],
    ['a trailing comma', '{"name":"a",}'],
    ['form data', 'name=a&id_customer=c'],
    ['XML', '<project><name>a</name></project>'],
    ['invalid UTF-8', Buffer.from([...Buffer.from('{"name":"'), 0xff, ...Buffer.from('"}')])],
    ['truncated UTF-8', Buffer.from([...Buffer.from('{"name":"'), 0xc3, ...Buffer.from('"}')])],
    ['a surrogate in UTF-8', Buffer.from([...Buffer.from('{"name":"'), 0xed, 0xa0, 0x80, ...Buffer.from('"}')])],
    ['UTF-16', Buffer.from('{"name":"a"}', 'utf16le')],
    ['UTF-16 with a byte order mark', Buffer.from('\ufeff{"name":"a"}', 'utf16le')],
    ['33 levels', `{"name":${nested(32)}}`],
    ['200,000 levels', `{"name":${'[{"a":'.repeat(100_000)}`],
    ['500,000 unclosed levels', '['.repeat(500_000)],
    ['gzip encoding without gzip data', Buffer.from('{}')],
  ])('answers 4001 for %s', async (label, body) => {
    const headers: Record<string, string> = label.startsWith('gzip') ? { 'Content-Encoding': 'gzip' } : {};
    const expected = (message: string) => ({ code: 4001, message, details: {} });
    const created = await ctx.api.send('POST', '/projects/', headers, body);
    expect([created.status, created.body]).toEqual([400, expected('Json bad formed')]);
    const updated = await ctx.api.send('PUT', pathOf('projects', project), headers, body);
    expect([updated.status, updated.body]).toEqual([400, expected('nonexistent file')]);
    expect((await ctx.api.get(pathOf('projects', project))).body.version).toBe(0);
  });

  it('reads 32 levels, not counting brackets in strings', async () => {
    expect(summarize(await post(`{"name":${nested(31)}}`))).toBe('4003 id_customer name');
    expect(summarize(await post(`{"name":${nested(32)}}`))).toBe('4001');
    const description = `${'[{'.repeat(50)}\\"${'['.repeat(50)}\\\\`;
    expect(summarize(await post(`{"name":"brackets","id_customer":"c","description":"${description}"}`))).toBe('2001');
  });

  it.each([
    undefined,
    'application/json',
    'application/json; charset=utf-16',
    'application/x-www-form-urlencoded',
    'multipart/form-data; boundary=x',
    'text/plain',
    'application/xml',
    'application/octet-stream',
    'nonsense',
  ])('reads JSON with Content-Type: %s', async (type) => {
    const body = projectBody(`labelled ${type}`);
    // a Buffer is sent without Content-Type
    expect(summarize(await (type === undefined ? post(Buffer.from(body)) : post(body, { 'Content-Type': type })))).toBe(
      '2001',
    );
    expect((await ctx.api.get(pathOf('projects', `labelled ${type}@acme`))).body.description).toBe('d\u00e9');
  });

  it('reads JSON behind a byte order mark', async () => {
    const marked = (body: string) => Buffer.from(`\ufeff${body}`);
    expect(summarize(await post(marked(projectBody('marked'))))).toBe('2001');
    expect(summarize(await post(gzipSync(marked(projectBody('marked too'))), { 'Content-Encoding': 'gzip' }))).toBe(
      '2001',
    );
    expect(
      summarize(await ctx.api.send('PUT', '/projects/marked@acme/', {}, marked('{"description":"\ufeffd"}'))),
    ).toBe('2005');
    expect((await ctx.api.get('/projects/marked@acme/')).body.description).toBe('\ufeffd');
    for (const body of ['', '[]', '\ufeff{}', ' \ufeff{}']) expect(summarize(await post(marked(body)))).toBe('4001');
    expect(
      summarize(await ctx.api.delete(pathOf('devices', 'no@acme', 'streams'), marked('{"at":1}').toString())),
    ).toBe('4041');
  });

  it('reads compressed bodies', async () => {
    expect(summarize(await post(gzipSync(projectBody('zipped')), { 'Content-Encoding': 'gzip' }))).toBe('2001');
    expect(summarize(await post(deflateSync(projectBody('deflated')), { 'Content-Encoding': 'deflate' }))).toBe('2001');
    expect((await ctx.api.get('/projects/zipped@acme/')).body.description).toBe('d\u00e9');
  });

  const mebibyte = 1024 * 1024;
  const padded = (body: string, size: number) => body.padEnd(size - Buffer.byteLength(body) + body.length, ' ');

  it('accepts 1 MiB and answers 413 for one byte more: plain, compressed or chunked', async () => {
    expect(summarize(await post(padded(projectBody('full'), mebibyte)))).toBe('2001');
    expect(summarize(await post(padded(projectBody('over'), mebibyte + 1)))).toBe('4131');
    expect(summarize(await ctx.api.send('PUT', pathOf('projects', project), {}, padded('{}', mebibyte + 1)))).toBe(
      '4131',
    );
    const zip = { 'Content-Encoding': 'gzip' };
    expect(summarize(await post(gzipSync(padded(projectBody('zipped full'), mebibyte)), zip))).toBe('2001');
    expect(summarize(await post(gzipSync(padded(projectBody('zipped over'), mebibyte + 1)), zip))).toBe('4131');
    expect(summarize(await post(gzipSync(Buffer.alloc(200 * mebibyte)), zip))).toBe('4131');
    const { key } = (await ctx.api.post('/apikeys/', { username: 'x', scope: 'write' })).body.details;
    const chunked = async (size: number) => {
      const body = new Blob([padded(projectBody(`chunked ${size}`), size)]).stream();
      const init = { method: 'POST', body, duplex: 'half', headers: { 'service.apikey': key } };
      return (await fetch(`${ctx.service.url}/projects/`, init as RequestInit)).status;
    };
    expect([await chunked(mebibyte), await chunked(mebibyte + 1)]).toEqual([200, 413]);
    expect((await ctx.api.get('/projects/?name=over')).body.total_documents).toBe(0);
  });

  it('accepts 16 MiB for a device config and answers 413 for one byte more', async () => {
    const path = pathOf('devices', await ctx.fixtures.device(), 'deviceconfigs');
    const file = 'A'.repeat(16 * mebibyte - 1024);
    const body = (name: string) => JSON.stringify({ name, version: '1', file });
    expect(summarize(await ctx.api.post(path, padded(body('full'), 16 * mebibyte)))).toBe('2001');
    expect((await ctx.api.send('HEAD', `${path}full/`)).headers['content-length']).toBe(String((file.length / 4) * 3));
    expect(summarize(await ctx.api.post(path, padded(body('over'), 16 * mebibyte + 1)))).toBe('4131');
    expect((await ctx.api.get(path)).body.total_documents).toBe(1);
  });
});

it.each(['a/b', '..', '%2F', 'a%', 'q?x=1', 'a#b', 'a+b c', '\u00e9\u{1F6F0}', 'a@b', '{"$ne":1}', ';=&,'])(
  'finds the name %s percent-encoded in a path',
  async (name) => {
    const created = await ctx.api.post('/models/', { name });
    const path = pathOf('models', `${name}@acme`);
    expect([summarize(created), created.headers.location]).toEqual(['2001', path]);
    expect((await ctx.api.get(path)).body.name).toBe(name);
    expect(summarize(await ctx.api.put(path, { description: 'x' }))).toBe('2005');
    expect(summarize(await ctx.api.delete(path))).toBe('2004');
  },
);

it.each(['%', '%zz@acme', '%c3@acme', '%ed%a0%80@acme', '%ff%fe@acme'])(
  'answers 4004 for %s in a path, which is not percent-encoded UTF-8',
  async (segment) => {
    for (const path of [
      `/projects/${segment}/`,
      `/devices/${segment}/deviceconfigs/`,
      `/groups/a@b/devices/${segment}/`,
    ])
      expect(summarize(await ctx.api.get(path))).toMatch(/^4004 ./);
  },
);

const configured = await useTestService({
  base_path: '/iot/v1',
  api_key_headers: ['service.apikey', 'x-api-key'],
  cors_origins: ['https://app.example', 'http://localhost:8080'],
});
describe('with other settings', () => {
  it('serves everything below BASE_PATH and includes it in Location', async () => {
    const reply = await configured.api.post('/iot/v1/projects/', { name: 'based', id_customer: 'c' });
    expect(reply.headers.location).toBe('/iot/v1/projects/based%40acme/');
    expect((await configured.api.get(reply.headers.location ?? '')).status).toBe(200);
    const key = await configured.api.post('/iot/v1/apikeys', { username: 'x', scope: 'read' });
    expect(key.headers.location).toBe(`/iot/v1/apikeys/${key.body.details.id}/`);
    for (const path of ['/projects/', '/iot/projects/', '/iot/v1', '/iot/v1x/projects/', '/iot/V1/projects/'])
      expect(summarize(await configured.api.get(path))).toBe('4041');
    expect((await configured.api.get('/healthz')).status).toBe(200);
    expect(summarize(await configured.service.clientWith(undefined).get('/iot/v1/projects/'))).toBe(
      '4011 service.apikey',
    );
  });

  it('reads the key from any of API_KEY_HEADERS', async () => {
    const { key } = (await configured.api.post('/iot/v1/apikeys/', { username: 'x', scope: 'read' })).body.details;
    const anonymous = configured.service.clientWith(undefined);
    const status = async (headers: Record<string, string>) =>
      (await anonymous.get('/iot/v1/projects/', headers)).status;
    expect([
      await status({ 'service.apikey': key }),
      await status({ 'X-API-Key': key }),
      await status({ authorization: key }),
    ]).toEqual([200, 200, 401]);
    const wrong = 'x'.repeat(43);
    expect([
      await status({ 'service.apikey': key, 'x-api-key': wrong, authorization: `Bearer ${wrong}` }),
      await status({ 'service.apikey': '', 'x-api-key': key, authorization: `Bearer ${wrong}` }),
      await status({ 'service.apikey': wrong, 'x-api-key': key, authorization: `Bearer ${key}` }),
      await status({ 'x-api-key': wrong, authorization: `Bearer ${key}` }),
    ]).toEqual([200, 200, 401, 401]);
  });

  it.each(['https://app.example', 'http://localhost:8080'])(
    'sends CORS headers to %s, for preflight requests without a key',
    async (Origin) => {
      const anonymous = configured.service.clientWith(undefined);
      const preflight = await anonymous.send('OPTIONS', '/iot/v1/devices/a@b/', {
        Origin,
        'Access-Control-Request-Method': 'PUT',
        'Access-Control-Request-Headers': 'service.apikey, if-match, x-former-client',
      });
      expect(preflight.status).toBe(204);
      expect(preflight.headers['access-control-allow-origin']).toBe(Origin);
      expect(preflight.headers['access-control-allow-methods']).toMatch(/\bPUT\b/);
      expect(preflight.headers['access-control-allow-headers']?.toLowerCase()).toBe(
        'service.apikey, if-match, x-former-client',
      );
      expect(preflight.headers.allow).toMatch(/\bDELETE\b/);
      for (const reply of [
        await configured.api.get('/iot/v1/projects/', { Origin }),
        await anonymous.get('/iot/v1/projects/', { Origin }),
      ]) {
        expect(reply.headers['access-control-allow-origin']).toBe(Origin);
        expect(reply.headers['access-control-expose-headers']).toMatch(/\bETag\b.*\bX-Request-Id\b/);
        expect(reply.headers.vary).toMatch(/\bOrigin\b/);
      }
    },
  );

  it('answers preflight requests with 204 on every path, known or not', async () => {
    const anonymous = configured.service.clientWith(undefined);
    const headers = { Origin: 'https://app.example', 'Access-Control-Request-Method': 'GET' };
    const known = ['/iot/v1/projects/', '/iot/v1/devices/noat', '/healthz', '/openapi.json'];
    const unknown = ['/iot/v1/nothing/', '/iot/v1/projects/%zz/x', '/iot/v1', '/projects/', '/', '/iot'];
    for (const path of [...known, ...unknown]) {
      const reply = await anonymous.send('OPTIONS', path, headers);
      expect([path, reply.status, reply.text]).toEqual([path, 204, '']);
      expect(reply.headers).toMatchObject({
        'access-control-allow-origin': 'https://app.example',
        'access-control-allow-methods': 'GET, HEAD, POST, PUT, PATCH, DELETE',
        'access-control-allow-headers':
          'service.apikey, x-api-key, Authorization, Accept, Content-Type, If-Match, If-None-Match, Last-Event-ID',
        'access-control-max-age': '600',
      });
      expect([path, 'allow' in reply.headers]).toEqual([path, known.includes(path)]);
    }
    for (const Origin of ['https://evil.example', '']) {
      const denied = async (path: string) => (await anonymous.send('OPTIONS', path, { ...headers, Origin })).status;
      expect([await denied('/iot/v1/nothing/'), await denied('/nothing/'), await denied('/iot/v1/projects/')]).toEqual([
        401, 404, 204,
      ]);
    }
    expect((await configured.api.get('/healthz', headers)).headers).not.toHaveProperty('access-control-allow-origin');
    expect((await configured.api.get('/iot/v1/nothing/', headers)).status).toBe(404);
  });

  it.each(['https://evil.example', 'http://app.example', 'https://app.example:444', 'null'])(
    'sends no CORS headers to %s',
    async (Origin) => {
      for (const method of ['GET', 'OPTIONS']) {
        const { headers } = await configured.api.send(method, '/iot/v1/projects/', { Origin });
        expect(Object.keys(headers).filter((name) => name.startsWith('access-control'))).toEqual([]);
      }
    },
  );

  it('sends no CORS headers by default', async () => {
    const { headers } = await ctx.api.get('/projects/', { Origin: 'https://app.example' });
    expect(headers['access-control-allow-origin']).toBeUndefined();
  });
});

const limited = await useTestService({ rate_limit_per_minute: 3 });
describe('with RATE_LIMIT_PER_MINUTE', () => {
  it('answers 4291 with Retry-After over the limit, counted per key', async () => {
    const other: Api = await limited.service.client();
    const statuses = [];
    for (let sent = 0; sent < 3; sent++)
      statuses.push((await limited.api.get(sent === 1 ? '/nothing/' : '/projects/')).status);
    expect(statuses).toEqual([200, 404, 200]);
    const reply = await limited.api.get('/projects/');
    expect(summarize(reply)).toBe('4291');
    expect(Number(reply.headers['retry-after'])).toBeGreaterThan(0);
    expect(Number(reply.headers['retry-after'])).toBeLessThanOrEqual(60);
    expect((await other.get('/projects/')).status).toBe(200);
  });
});
