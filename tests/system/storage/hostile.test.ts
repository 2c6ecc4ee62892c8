import { once } from 'node:events';
import { access, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { createDropbox } from '../../../src/file-storage/providers/dropbox.js';
import { providers } from '../../../src/file-storage/providers/providers.js';
import { runInParallel } from '../../../src/lib/parallel.js';
import { issueKey } from '../../../src/objects/api-keys.js';
import { collectGarbage } from '../../support/garbage.js';
import { waitUntil } from '../../support/process.js';
import { type Api, startTestService, type TestService } from '../../support/service.js';
import { type Behaviour, type HostileServer, startHostile } from '../../support/storage/hostile.js';
import { wordsOf } from '../../support/words.js';

interface Listed {
  name: string;
  path: string;
  url: string;
}

const quiet = { info() {}, warn() {}, error() {} };
const davSettings = (url: string) => ({ url, username: 'fleet', password: 'not a secret' });
const s3Settings = (endpoint: string) => ({
  endpoint,
  region: 'eu-central-1',
  bucket: 'fleet-files',
  access_key_id: 'AK1',
  secret_access_key: 'not a secret'.replaceAll(' ', '-'),
});

describe('addresses that are not public', () => {
  let service: TestService;
  let api: Api;
  let canary: HostileServer;
  let canary6: HostileServer | undefined;

  beforeAll(async () => {
    service = await startTestService({ log: quiet });
    api = await service.client();
    canary = await startHostile({ kind: 'answer', status: 207 });
    canary6 = await startHostile({ kind: 'answer', status: 207 }, '::1').catch(() => undefined);
  });
  afterAll(async () => {
    await service.stop();
    await canary.stop();
    await canary6?.stop();
  });

  /** `P` is replaced by the port of a listening server. */
  const spellings = [
    ...wordsOf(`
      http://127.0.0.1:P/ https://127.0.0.1:P/ http://localhost:P/ http://LOCALHOST:P/ http://localhost.:P/ http://127.1:P/
      http://127.0.1:P/ http://127.0.0.1.:P/ http://127.000.000.001:P/ http://2130706433:P/ http://0x7f000001:P/
      http://0x7F.0.0.1:P/ http://0x7f.1:P/ http://017700000001:P/ http://0177.0.0.1:P/ http://0177.0.0.01:P/
      http://127.0.0.2:P/ http://127.255.255.254:P/ http://0:P/ http://0.0.0.0:P/ http://00000.0:P/ http://0x0:P/
      http://[::1]:P/ http://[0:0:0:0:0:0:0:1]:P/ http://[::]:P/ http://[::ffff:127.0.0.1]:P/ http://[::ffff:7f00:1]:P/
      http://[0:0:0:0:0:ffff:7f00:0001]:P/ http://[::127.0.0.1]:P/ http://[::ffff:0:127.0.0.1]:P/
      http://[64:ff9b::127.0.0.1]:P/ http://[64:ff9b:1::7f00:1]:P/ http://[2002:7f00:1::]:P/ http://[2001:0:7f00:1::]:P/
      http://[fe80::1]:P/ http://[fd00::1]:P/ http://[fec0::1]:P/ http://[ff02::1]:P/ http://１２７.０.０.１:P/
      http://①②⑦.⓪.⓪.①:P/ http://127。0。0。1:P/ http://%31%32%37.0.0.1:P/ http://user@127.0.0.1:P/ http://a:b@127.0.0.1:P/
      http://127.0.0.1:P/?x http://127.0.0.1:P/#@storage.example/ http:127.0.0.1:P/ http:///127.0.0.1:P/ ftp://127.0.0.1:P/
      file:///etc/passwd gopher://127.0.0.1:P/ unix:/var/run/docker.sock //127.0.0.1:P/ data:text/xml,x
      http://169.254.169.254/ http://169.254.170.2/ http://100.100.100.200/ http://[fd00:ec2::254]/ http://192.0.0.192/
      http://168.63.129.16/ http://10.0.0.1:P/ http://172.16.0.1:P/ http://192.168.0.1:P/ http://100.64.0.1:P/
      http://198.18.0.1:P/ http://224.0.0.1:P/ http://255.255.255.255:P/ http://192.0.2.1:P/ http://127.0.0.1.nip.invalid:P/
      http://:P/ http://
    `),
    'http:\\\\127.0.0.1:P\\',
    'ht\ntp://127.0.0.1:P/',
    ' http://127.0.0.1:P/',
    'http://127.0.0.1\t:P/',
    `http://${hostname()}:P/`,
  ];

  it(`refuses ${spellings.length} spellings and connects to none of them`, async () => {
    expect(spellings.length).toBeGreaterThanOrEqual(40);
    const ports = [canary.port, ...(canary6 === undefined ? [] : [canary6.port])];
    for (const spelling of spellings) {
      for (const port of ports) {
        const address = spelling.replace(':P', `:${port}`);
        const dav = await api.put('/external/webdav/user/alice/', davSettings(address));
        expect([address, dav.status, dav.body.code, Object.keys(dav.body.details)]).toEqual([
          address,
          400,
          4003,
          ['url'],
        ]);
        const s3 = await api.put('/external/s3/user/alice/', s3Settings(address));
        expect([address, s3.status, s3.body.code, Object.keys(s3.body.details)]).toEqual([
          address,
          400,
          4003,
          ['endpoint'],
        ]);
      }
    }
    expect(canary.connections()).toBe(0);
    expect(canary6?.connections() ?? 0).toBe(0);
  });

  it('are connected to where they are allowed: the control for the refusals above', async () => {
    const open = await startTestService({ filestore_allow_nets: ['127.0.0.0/8'], log: quiet });
    const admin = await open.client();
    const reply = await admin.put('/external/webdav/user/alice/', davSettings(canary.url));
    expect([reply.status, canary.connections() > 0]).toEqual([400, true]);
    for (const url of [
      'http://169.254.169.254/',
      'http://[fe80::1]/',
      'http://[::ffff:169.254.169.254]/',
      'http://10.0.0.1/',
    ])
      expect((await admin.put('/external/webdav/user/alice/', davSettings(url))).body.details.url).toMatch(/public/);
    await open.stop();
  });

  it('are not reached by a redirect', async () => {
    const before = canary.connections();
    const guide = await startHostile({ kind: 'redirect', to: `http://127.0.0.1:${canary.port}/` }, '127.0.0.2');
    const open = await startTestService({ filestore_allow_nets: ['127.0.0.2/32'], log: quiet });
    const admin = await open.client();
    for (const status of [301, 302, 303, 307, 308]) {
      guide.behave({ kind: 'redirect', to: `http://127.0.0.1:${canary.port}/`, status });
      expect((await admin.put('/external/webdav/user/alice/', davSettings(guide.url))).body.code).toBe(4003);
      expect((await admin.put('/external/s3/user/alice/', s3Settings(guide.url))).body.code).toBe(4003);
    }
    expect([guide.connections() >= 10, canary.connections()]).toEqual([true, before]);
    await open.stop();
    await guide.stop();
  });
});

describe('paths', () => {
  let service: TestService;
  let api: Api;
  let root: string;
  const address = '/external/local/user/alice/';

  beforeAll(async () => {
    root = await mkdtemp(join(tmpdir(), 'hostile-'));
    // the folder of another account is the nearest one outside
    await mkdir(join(root, 'acme', 'sub'), { recursive: true });
    await mkdir(join(root, 'outside'));
    await writeFile(join(root, 'outside', 'secret.txt'), 'canary');
    await writeFile(join(root, 'secret.txt'), 'canary');
    for (const file of ['ok.txt', 'sub/ok.txt']) await writeFile(join(root, 'acme', file), 'inside');
    await symlink('../outside', join(root, 'acme', 'way out'));
    await symlink('../../outside/secret.txt', join(root, 'acme', 'sub', 'secret.txt'));
    await symlink('/', join(root, 'acme', 'sub', 'all'));
    await symlink('.', join(root, 'acme', 'sub', 'loop'));
    service = await startTestService({ filestore_local_root: root, log: quiet });
    api = await service.client();
  });
  afterAll(async () => {
    await service.stop();
    await rm(root, { recursive: true });
  });

  const hostile = [
    ...wordsOf(`
      .. ../ ../outside ../outside/ sub/.. sub/../.. sub/../../outside ./.. ./../outside sub/./../.. / /etc //etc
      /../outside sub//../../outside /// sub/all sub/all/etc sub/all/ sub/loop sub/loop/loop/ok.txt sub/secret.txt ok.txt
      ok.txt/.. %2e%2e %2e%2e/outside ..%2foutside %252e%252e ..%c0%afoutside %2fetc ..;/outside .../outside ..../outside
      ．．/outside ‥/outside ~ ~root file:///etc
    `),
    'way out',
    'way out/',
    'way out/.',
    './way out',
    '..\\outside',
    '..\\',
    'sub\\..\\..\\outside',
    'C:\\',
    '\0',
    'sub\0/../..',
    '../outside\0',
    '..\u0000',
    'sub/\u202e..',
    '. ./outside',
    '.. /outside',
    ' ..',
    '..\n/outside',
  ];

  it(`keeps ${hostile.length} hostile paths inside the folder`, async () => {
    expect(hostile.length).toBeGreaterThanOrEqual(40);
    for (const path of hostile) {
      const reply = await api.put(address, { path });
      expect([path, reply.status, reply.body.code, Object.keys(reply.body.details)]).toEqual([
        path,
        400,
        4003,
        ['path'],
      ]);
    }
    expect((await api.get(`${address}?op=all`)).status).toBe(401);
  });

  it('lists nothing behind symbolic links', async () => {
    for (const path of ['', '.', './', 'sub/', 'sub//', 'sub']) {
      const linked = await api.put(address, { path });
      const inside = /^\.?\/?$/.test(path);
      expect([path, linked.status]).toEqual([path, path === './' ? 400 : 200]);
      if (linked.status !== 200) continue;
      const { body } = await api.get(`${address}?op=all`);
      expect(body.result.map((file: Listed) => file.path)).toEqual(inside ? ['ok.txt', 'sub/ok.txt'] : ['ok.txt']);
    }
  });

  it('shows each account its own folder, which is not created', async () => {
    const other = await service.client({ account: 'outside' });
    const third = await service.client({ account: 'third' });
    for (const path of ['acme', 'acme/sub', 'sub', 'outside', 'outside/secret.txt'])
      expect((await other.put(address, { path })).body).toMatchObject({
        code: 4003,
        details: { path: 'does not exist' },
      });
    const file = await other.put(address, { path: 'secret.txt' });
    expect(file.body).toMatchObject({ code: 4003, details: { path: 'is no folder' } });
    expect((await other.put(address, { path: '.' })).status).toBe(200);
    const { body } = await other.get(`${address}?op=all`);
    expect(body.result.map((file: Listed) => file.path)).toEqual(['secret.txt']);
    expect(await (await fetch(body.result[0].url)).text()).toBe('canary');
    for (const path of ['.', '', 'third'])
      expect((await third.put(address, { path })).body).toMatchObject({
        code: 4003,
        details: { path: 'does not exist' },
      });
    await expect(access(join(root, 'third'))).rejects.toThrow('ENOENT');
  });

  it('opens nothing that was swapped for a symbolic link', async () => {
    expect((await api.put(address, { path: '' })).status).toBe(200);
    const { body } = await api.get(`${address}?op=all`);
    const url = body.result[1].url;
    expect(await (await fetch(url)).text()).toBe('inside');
    const file = join(root, 'acme', 'sub', 'ok.txt');
    await rm(file);
    const gone = await fetch(url);
    expect([gone.status, await gone.json()]).toMatchObject([404, { code: 4041 }]);
    await symlink('../../outside/secret.txt', file);
    expect(await readFile(file, 'utf8')).toBe('canary');
    const swapped = await fetch(url);
    expect([swapped.status, (await swapped.text()).includes('canary')]).toEqual([404, false]);
    await rm(file);
    await rm(join(root, 'acme', 'sub'), { recursive: true });
    await mkdir(join(root, 'outside', 'sub'));
    await writeFile(join(root, 'outside', 'sub', 'ok.txt'), 'canary');
    await symlink('../outside/sub', join(root, 'acme', 'sub'));
    const moved = await fetch(url);
    expect([moved.status, (await moved.text()).includes('canary')]).toEqual([404, false]);
    await rm(join(root, 'acme', 'sub'));
  });

  it('opens only links that it has created', async () => {
    const { body } = await api.get(`${address}?op=all`);
    const url = new URL(body.result[0].url);
    const [, external, files, token = '', name] = url.pathname.split('/');
    const open = async (given: string) => (await fetch(`${url.origin}/${external}/${files}/${given}/${name}`)).status;
    expect(await open(token)).toBe(200);
    for (let at = 0; at < token.length; at += 7) {
      const other = token[at] === 'A' ? 'B' : 'A';
      expect(await open(token.slice(0, at) + other + token.slice(at + 1))).toBe(404);
    }
    for (const given of [
      'x',
      token.slice(0, -4),
      `${token}AAAA`,
      encodeURIComponent('../../etc/passwd'),
      '%00',
      'A'.repeat(5000),
    ])
      expect([given, await open(given)]).toEqual([given, 404]);
    // no link at all, so it needs a key
    expect((await fetch(`${url.origin}/external/files/${token}/`)).status).toBe(401);
  });
});

/** A WebDAV listing of `hrefs`, in which `/dav/` is a folder and the rest are files. */
function multistatus(hrefs: readonly string[]): string {
  const file = '<propstat><prop><resourcetype/><getcontentlength>6</getcontentlength></prop></propstat>';
  const folder = '<propstat><prop><resourcetype><collection/></resourcetype></prop></propstat>';
  const responses = hrefs.map((href) => `<response><href>${href}</href>${href === '/dav/' ? folder : file}</response>`);
  return `<?xml version="1.0"?><multistatus xmlns="DAV:">${responses.join('')}</multistatus>`;
}

const listing = (body: string): Behaviour => ({ kind: 'answer', status: 207, body });
const works = listing(multistatus(['/dav/', '/dav/ok.txt']));
const bucketWorks: Behaviour = { kind: 'answer', status: 200, body: '<ListBucketResult></ListBucketResult>' };
const dropboxWorks: Behaviour = { kind: 'answer', status: 200, body: '{"entries":[],"has_more":false}' };

describe('servers', () => {
  let service: TestService;
  let api: Api;
  let server: HostileServer;
  const started: HostileServer[] = [];
  const dav = '/external/webdav/user/alice/';

  beforeAll(async () => {
    server = await startHostile(works);
    service = await startTestService({
      filestore_allow_nets: ['127.0.0.0/8'],
      providers: [...providers.filter(({ name }) => name !== 'dropbox'), createDropbox(server.url)],
      log: quiet,
    });
    api = await service.client();
  });
  afterAll(async () => {
    await service.stop();
    for (const one of [server, ...started]) await one.stop();
  });

  it('cannot list files outside the linked folder', async () => {
    const canary = await startHostile({ kind: 'answer', status: 200 }, '127.0.0.3');
    expect((await api.put(dav, davSettings(`${server.url}/dav`))).status).toBe(200);
    const elsewhere = [
      ...wordsOf(`
        /dav/../secret.txt /dav/%2e%2e/secret.txt /secret.txt /dav/sub/secret.txt /davsecret.txt /other/secret.txt
        /dav/a%2F..%2F..%2Fsecret.txt /dav/..%2Fsecret.txt /dav/%00secret.txt /dav/%ff /dav/% // http://[ .. ../secret.txt
        /dav/sub/../../secret.txt /dav/./../secret.txt
      `),
      '',
      '\\..\\secret.txt',
      `${canary.url}/secret.txt`,
    ];
    server.behave(listing(multistatus(['/dav/', ...elsewhere, `${canary.url}/dav/named.txt`, '/dav/ok.txt'])));
    const { body } = await api.get(`${dav}?op=all`);
    expect(body.result.map(({ path }: Listed) => path)).toEqual(['named.txt', 'ok.txt']);
    server.behave({ kind: 'answer', status: 200, body: 'inside' });
    for (const { url } of body.result) expect(await (await fetch(url)).text()).toBe('inside');
    // requests go to the linked host, whatever host the listing names
    expect(canary.connections()).toBe(0);
    await canary.stop();
  });

  it('cannot declare entities or send anything but a listing', async () => {
    const told = multistatus(['/dav/', '/dav/ok.txt']);
    const entities = [
      '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>',
      '<!DOCTYPE x>',
      '<!DOCTYPE x [<!ENTITY a "a"><!ENTITY b "&a;&a;">]>',
    ];
    const bodies = [
      ...entities.map((doctype) => told.replace('?>', `?>${doctype}`).replace('ok.txt', '&e;.txt')),
      ...entities.map((doctype) => told.replace('?>', `?>${doctype}`)),
      ...[
        '',
        'plain text',
        '<html></html>',
        '<multistatus xmlns="DAV:">',
        `<multistatus xmlns="DAV:">${'<a>'.repeat(20_000)}`,
        `<multistatus xmlns="DAV:" ${Array.from({ length: 2_000 }, (_, index) => `a${index}=""`).join(' ')}/>`,
        told.replace('ok', '&nbsp;'),
        told.slice(0, -5),
        `${told}<x/>`,
      ],
    ];
    for (const body of bodies) {
      server.behave(listing(body));
      const tried = await api.put('/external/webdav/user/bob/', davSettings(`${server.url}/dav`));
      expect([body, tried.status, tried.body.code]).toEqual([body, 400, 4003]);
      const listed = await api.get(`${dav}?op=all`);
      expect([body, listed.status, listed.body.code]).toEqual([body, 503, 5032]);
    }
  });

  it('may hang, drip or fail without delaying other requests', async () => {
    const head = 'HTTP/1.1 207 Multi-Status\r\nContent-Type: application/xml';
    const hanging: Behaviour[] = [{ kind: 'silent' }, { kind: 'stall', head }, { kind: 'drip', head }];
    const behaviours: Behaviour[] = [
      ...hanging,
      { kind: 'cut', head },
      ...[200, 204, 400, 401, 403, 404, 409, 429, 500, 503].map((status): Behaviour => ({ kind: 'answer', status })),
    ];
    const dropbox = '/external/dropbox/user/alice/';
    server.behave(dropboxWorks);
    expect((await api.put(dropbox, { access_token: 'token' })).status).toBe(200);
    let answered = 0;
    const hung: { own: HostileServer; before: number }[] = [];
    // with four requests each, seven at once stay below the part of one account
    const waiting = runInParallel(behaviours.entries(), 7, async ([index, behaviour]) => {
      const own = await startHostile(({ method }) => (method === 'PROPFIND' ? works : bucketWorks));
      started.push(own);
      const places: [string, object][] = [
        [`/external/webdav/user/u-${index}/`, davSettings(`${own.url}/dav`)],
        [`/external/s3/user/u-${index}/`, s3Settings(own.url)],
      ];
      for (const [address, settings] of places) expect((await api.put(address, settings)).status).toBe(200);
      own.behave(behaviour);
      if (hanging.includes(behaviour)) hung.push({ own, before: own.requests().length });
      const replies = places.map(async ([address, settings]) => {
        const [listed, linked] = await Promise.all([api.get(`${address}?op=all`), api.put(address, settings)]);
        expect([behaviour, listed.status, listed.body.code]).toEqual([behaviour, 503, 5032]);
        expect(listed.body.details.message).toMatch(/^the linked storage /);
        expect([behaviour, linked.status, linked.body.code]).toEqual([behaviour, 400, 4003]);
      });
      await Promise.all(replies);
      if (hanging.includes(behaviour)) answered++;
    });
    // other requests are answered at the same time
    expect((await api.get('/projects/')).status).toBe(200);
    expect(answered).toBe(0);
    // each hangs in a listing and a check of both kinds
    await waitUntil(() => hung.length === 3 && hung.every(({ own, before }) => own.requests().length === before + 4));
    collectGarbage();
    await waiting;
    for (const behaviour of behaviours
      .filter(({ kind }) => kind === 'cut' || kind === 'answer')
      .concat({ kind: 'silent' })) {
      server.behave(behaviour);
      const { status, body } = await api.get(`${dropbox}?op=all`);
      expect([behaviour, status, body.code]).toEqual([behaviour, 503, 5032]);
    }
  });

  it('are cut off when they flood', async () => {
    const flood = await startHostile(({ method }) => (method === 'PROPFIND' ? works : bucketWorks));
    started.push(flood);
    const places: [string, object][] = [
      ['/external/webdav/user/flood/', davSettings(`${flood.url}/dav`)],
      ['/external/s3/user/flood/', s3Settings(flood.url)],
    ];
    for (const [address, settings] of places) {
      expect((await api.put(address, settings)).status).toBe(200);
      const answers = address.includes('webdav') ? '207 Multi-Status' : '200 OK';
      flood.behave({ kind: 'endless', head: `HTTP/1.1 ${answers}\r\nContent-Type: application/xml` });
      const { status, body } = await api.get(`${address}?op=all`);
      expect([address, status, body.code]).toEqual([address, 503, 5032]);
      flood.behave(bucketWorks);
    }
    await waitUntil(() => flood.open() === 0);
  });

  it('may be down', async () => {
    const gone = await startHostile(works);
    expect((await api.put('/external/webdav/user/carol/', davSettings(`${gone.url}/dav`))).status).toBe(200);
    await gone.stop();
    const { status, body } = await api.get('/external/webdav/user/carol/?op=all');
    expect([status, body]).toEqual([
      503,
      { code: 5032, message: 'exception', details: { message: 'the linked storage could not be reached' } },
    ]);
  });
});

describe('clients that give up', () => {
  const settings = { path: '.' };
  let root: string;
  let service: TestService;
  let api: Api;
  let link: URL;

  beforeAll(async () => {
    root = await mkdtemp(join(tmpdir(), 'links-'));
    await mkdir(join(root, 'acme'));
    await writeFile(join(root, 'acme', 'large.bin'), Buffer.alloc(4 * 1024 * 1024));
    service = await startTestService({ filestore_local_root: root, filestore_allow_nets: ['127.0.0.0/8'], log: quiet });
    api = await service.client();
    expect((await api.put('/external/local/user/alice/', settings)).status).toBe(200);
    const { body } = await api.get('/external/local/user/alice/?op=all');
    link = new URL(body.result[0].url);
  });
  afterAll(async () => {
    await service.stop();
    await rm(root, { recursive: true });
  });

  /** Requests a path `count` times on one connection and resets it, before or after the first bytes of an answer. */
  async function giveUp(request: string, count: number, when: 'at once' | 'in the answer'): Promise<void> {
    const socket = connect(Number(link.port), link.hostname);
    socket.on('error', () => undefined);
    await once(socket, 'connect');
    socket.write(request.repeat(count));
    // one turn for the service, in this process, to read the requests
    if (when === 'at once') await sleep(2);
    else await once(socket, 'data');
    socket.resetAndDestroy();
  }

  it.each(['at once', 'in the answer'] as const)('on links %s close none of them for others', async (when) => {
    const request = `GET ${link.pathname} HTTP/1.1\r\nHost: ${link.host}\r\n\r\n`;
    // alone and pipelined, where Node reports no end of the queued responses
    for (let round = 0; round < 150; round++) await giveUp(request, 1, when);
    for (let round = 0; round < 40; round++) await giveUp(request, 10, when);
    const answer = await fetch(link);
    expect([answer.status, (await answer.arrayBuffer()).byteLength]).toEqual([200, 4 * 1024 * 1024]);
  });

  it('on listings free the link and the slot at once', async () => {
    const server = await startHostile(works);
    const address = '/external/webdav/user/alice/';
    expect((await api.put(address, davSettings(`${server.url}/dav`))).status).toBe(200);
    server.behave({ kind: 'silent' });
    const { key } = await issueKey(service.db, { account: 'acme', username: 'alice', scope: 'read' }, 0);
    const request = `GET ${address}?op=all HTTP/1.1\r\nHost: ${link.host}\r\nservice.apikey: ${key}\r\n\r\n`;
    for (let round = 0; round < 70; round++) {
      const before = server.requests().length;
      const socket = connect(Number(link.port), link.hostname);
      socket.on('error', () => undefined);
      await once(socket, 'connect');
      socket.write(request);
      await waitUntil(() => server.requests().length > before);
      socket.resetAndDestroy();
      await waitUntil(() => server.open() === 0, 10_000);
    }
    server.behave(works);
    expect((await api.get(`${address}?op=all`)).status).toBe(200);
    await server.stop();
  });

  it('on a long listing behind an unread answer free the link', async () => {
    const keys = Array.from(
      { length: 10_000 },
      (_, index) => `<Contents><Key>${'k'.repeat(100)}${index}</Key></Contents>`,
    );
    const list = `<ListBucketResult>${keys.join('')}</ListBucketResult>`;
    const server = await startHostile({ kind: 'answer', status: 200, body: list });
    const address = '/external/s3/user/alice/';
    expect((await api.put(address, s3Settings(server.url))).status).toBe(200);
    const { key } = await issueKey(service.db, { account: 'acme', username: 'alice', scope: 'read' }, 0);
    const before = server.requests().length;
    const socket = connect(Number(link.port), link.hostname);
    socket.on('error', () => undefined);
    const requests = [`GET ${link.pathname} HTTP/1.1`, `GET ${address}?op=all HTTP/1.1\r\nservice.apikey: ${key}`];
    socket.write(requests.map((request) => `${request}\r\nHost: ${link.host}\r\n\r\n`).join(''));
    await waitUntil(() => server.requests().length > before);
    // until the listing waits for the client, which reads nothing
    await sleep(1_500);
    socket.resetAndDestroy();
    // nothing else would end the listing
    await waitUntil(async () => (await api.get(`${address}?op=all`)).body.total_documents === 10_000);
    await server.stop();
  });

  it('leave one listing at a time to each link, and others wait', async () => {
    const server = await startHostile(works);
    const [alice, bob] = ['/external/webdav/user/alice/', '/external/webdav/user/bob/'];
    for (const address of [alice, bob])
      expect((await api.put(address, davSettings(`${server.url}/dav`))).status).toBe(200);
    server.behave({ kind: 'silent' });
    const before = server.requests().length;
    const first = api.get(`${alice}?op=all`);
    await waitUntil(() => server.requests().length > before);
    const second = api.get(`${alice}?op=newest`);
    server.behave(works);
    expect((await api.get(`${bob}?op=all`)).status).toBe(200);
    const others = server.requests().length;
    expect((await first).body.code).toBe(5032);
    expect((await second).status).toBe(200);
    expect(server.requests().length - others).toBe(others - before - 1);
    await server.stop();
  });
});
