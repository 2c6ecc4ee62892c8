import { describe, expect, it } from '@jest/globals';
import { type Own, summarize } from './expect-status.js';
import { type Api, at } from './service.js';

type Json = Record<string, unknown>;

export const emoji = '\u{1F6F0}';
export const loneSurrogate = '\ud83d';

/** Values of a field that are accepted, and ones that are not, as bodies. */
export type FieldRule = readonly [field: string, good: readonly unknown[], bad: readonly unknown[]];

const texts = (max: number): FieldRule[1] => ['x', ' x\n', 'x'.repeat(max), emoji.repeat(max)];
const noTexts = (max: number): FieldRule[2] => [
  'x'.repeat(max + 1),
  emoji.repeat(max + 1),
  'a\0',
  loneSurrogate,
  5,
  true,
  ['x'],
  {},
];

/** A text of 1 to `max` code points, stored as given (contract 3). */
export function textRule(field: string, max: number): FieldRule {
  return [field, texts(max), ['', ...noTexts(max)]];
}

const identifierRule = (field: string): FieldRule => [field, [], ['', 'noat', 'a\0@b', 5, true, [], {}]];

/** The rules of properties (contract 4); a round trip of the rest stands in assets.test.ts. */
export const propertiesRule: FieldRule = [
  'properties',
  [{}, { a: { b: { c: { d: { fifth: 'level' } } } } }, { a: [[[[]]]] }, { [emoji.repeat(100)]: 1 }, keys(100)],
  [
    { a: { b: { c: { d: { e: {} } } } } },
    { a: [[[[[]]]]] },
    { ['k'.repeat(101)]: 1 },
    keys(101),
    { 'a\0': 1 },
    { a: 'b\0' },
    { a: [{ b: loneSurrogate }] },
    { [loneSurrogate]: 1 },
    { a: { 'b\0': 1 } },
    'x',
    5,
    true,
    [],
  ],
];

function keys(count: number): Record<string, number> {
  return Object.fromEntries(Array.from({ length: count }, (_, index) => [`k${index}`, index]));
}

/** §2.1: the fields that every resource has. */
export const commonRules: readonly FieldRule[] = [
  [
    'name',
    ['n', 'n'.repeat(50), emoji.repeat(50), 'a@b', 'a/b%2F#?&+', '.'],
    ['', '  ', 'n'.repeat(51), emoji.repeat(51), 'a\u0007b', 'a\u0085b', 'a\0', loneSurrogate, 5, true, ['n'], {}],
  ],
  ['description', ['', ...texts(200)], noTexts(200)],
  ['enabled', [0, 1, true, false], [2, -1, '1', 'true', '', [], {}]],
];

interface Subject {
  /** Path segment, and the word in messages. */
  plural: string;
  label: string;
  /** What a body needs beside `name`. */
  required(): Promise<Json>;
  /** Every optional field beside the common ones, with a value. */
  optional?: Json;
  rules?: readonly FieldRule[];
  /** The fields that name a resource above, its path segment and how to make one. */
  parents?: Readonly<Record<string, readonly [plural: string, make: (api: Api) => Promise<string>]>>;
  /** Names make the identifier alone, and are taken once (contract 3). */
  uniqueNames?: boolean;
}

const serviceFields = {
  id_developer: 'x@y',
  owner: 'mallory',
  updater: 'mallory',
  created_at: 1,
  updated_at: 'soon',
  status: 'x',
};

/** The promises of section 2.1 and contract 3, 4 and 5 that every resource keeps. */
export function describeResourceContract(
  own: Own,
  { plural, label, required, optional = {}, rules = [], parents = {}, uniqueNames = true }: Subject,
): void {
  const readOnly: Json = { ...serviceFields };
  if (plural !== 'devices') delete readOnly.status;
  let count = 0;
  let cached: Promise<Json> | undefined;
  const base = () => {
    cached ??= required();
    return cached;
  };
  const fresh = () => `promise ${++count}`;

  async function make(fields: Json = {}, api: Api = own.api): Promise<string> {
    const name = fields.name ?? fresh();
    const reply = await api.post(`/${plural}/`, { ...(await base()), name, ...fields });
    if (summarize(reply) !== '2001') throw new Error(reply.text);
    return decodeURIComponent(reply.headers.location?.split('/').at(-2) ?? '');
  }
  const shown = async (id: string) => (await own.api.get(at(plural, id))).body;
  const total = async () => (await own.api.get(`/${plural}/?max=1`)).body.total_documents;

  describe(`a ${label} as every resource`, () => {
    it.each([...commonRules, ...rules, ...Object.keys(parents).map(identifierRule)])(
      'stores %s as given, on POST and PUT, and refuses what is against its rule',
      async (field, good, bad) => {
        const id = await make();
        for (const value of good) {
          const stored = field === 'enabled' ? Boolean(value) : value;
          const created = await make({ [field]: value });
          expect((await shown(created))[field]).toEqual(stored);
          if (field === 'name') await own.api.delete(at(plural, created));
          const changed = await own.api.put(at(plural, id), { [field]: value });
          expect([summarize(changed), changed.body.details[field]]).toEqual(['2005', stored]);
          expect((await shown(id))[field]).toEqual(stored);
        }
        const [before, there] = [await shown(id), await total()];
        const { id_group, ...rest } = await base();
        const others = id_group === undefined || field in parents ? rest : { ...rest, id_group };
        for (const value of bad) {
          // a lone surrogate travels as an escape
          expect([
            value,
            summarize(await own.api.post(`/${plural}/`, { name: fresh(), ...others, [field]: value })),
          ]).toEqual([value, `4003 ${field}`]);
          expect([value, summarize(await own.api.put(at(plural, id), { [field]: value }))]).toEqual([
            value,
            `4003 ${field}`,
          ]);
        }
        expect([await shown(id), await total()]).toEqual([before, there]);
      },
    );

    it('trims names', async () => {
      const name = fresh();
      const id = await make({ name: ` \t${name}\n ` });
      expect([id, (await shown(id)).name]).toEqual([`${name}@acme`, name]);
      expect(summarize(await own.api.put(at(plural, id), { name: ` ${name}!  ` }))).toBe('2005');
      expect((await shown(id)).name).toBe(`${name}!`);
    });

    it('keeps its identifier when it is renamed', async () => {
      const [name, other] = [fresh(), fresh()];
      const id = await make({ name });
      expect((await own.api.put(at(plural, id), { name: other })).body.details).toMatchObject({
        id_developer: `${name}@acme`,
        name: other,
      });
      expect((await own.api.get(at(plural, `${other}@acme`))).status).toBe(404);
    });

    it('reports all wrong fields at once', async () => {
      const wrong = {
        name: '',
        description: 5,
        enabled: 'yes',
        '': 1,
        _id: 1,
        $where: 1,
        __v: 0,
        constructor: 1,
        ...JSON.parse('{"__proto__":1}'),
      };
      const faults = ['', '$where', '__proto__', '__v', '_id', 'constructor', 'description', 'enabled', 'name'];
      expect(summarize(await own.api.post(`/${plural}/`, { ...(await base()), ...wrong }))).toBe(
        `4003 ${faults.join(' ')}`,
      );
      const put = await own.api.put(at(plural, await make()), { version: -1, ...wrong });
      expect(summarize(put)).toBe(`4003 ${[...faults, 'version'].join(' ')}`);
    });

    it('calls a field that it does not know an unknown field', async () => {
      const details = { color: 'unknown field', Name: 'unknown field' };
      const wrong = { color: 'red', Name: null };
      expect((await own.api.post(`/${plural}/`, { name: fresh(), ...(await base()), ...wrong })).body.details).toEqual(
        details,
      );
      expect((await own.api.put(at(plural, await make()), wrong)).body.details).toEqual(details);
    });

    it('needs its required fields', async () => {
      const whole: Json = { name: fresh(), ...(await base()) };
      const id = await make();
      const before = await shown(id);
      for (const field of Object.keys(whole)) {
        const wrong = field === 'id_group' && plural === 'devices' ? '4003 id_asset id_group' : `4003 ${field}`;
        const { [field]: _, ...rest } = whole;
        expect(summarize(await own.api.post(`/${plural}/`, rest))).toBe(wrong);
        expect(summarize(await own.api.post(`/${plural}/`, { ...rest, [field]: null }))).toBe(wrong);
        expect(summarize(await own.api.put(at(plural, id), { [field]: null }))).toBe(`4003 ${field}`);
      }
      expect(await shown(id)).toEqual(before);
    });

    it('takes null for an absent field on POST and takes the field away on PUT, where a default comes back', async () => {
      const plain = await shown(await make());
      const given: Json = { description: 'd', enabled: false, ...optional };
      const nulls = Object.fromEntries(Object.keys(given).map((field) => [field, null]));
      const alike = { ...plain, name: expect.anything(), id_developer: expect.anything() };
      expect(await shown(await make(nulls))).toEqual(alike);
      const id = await make(given);
      expect(await shown(id)).toMatchObject(given);
      expect(summarize(await own.api.put(at(plural, id), nulls))).toBe('2005');
      expect(await shown(id)).toEqual({ ...alike, version: 1 });
    });

    it('accepts and ignores what only the service writes', async () => {
      const id = await make({ ...readOnly, version: 'x' });
      const before = await shown(id);
      expect(before).toMatchObject({
        owner: 'alice',
        updater: 'alice',
        created_at: own.service.now(),
        updated_at: own.service.now(),
        version: 0,
      });
      expect(summarize(await own.api.put(at(plural, id), readOnly))).toBe('2005');
      expect(await shown(id)).toEqual({ ...before, version: 1 });
    });

    it('takes back what GET returned, changed', async () => {
      const id = await make({ description: 'before', ...optional });
      const given = await shown(id);
      const changed = { ...given, description: 'after' };
      expect((await own.api.put(at(plural, id), changed)).body).toEqual({
        code: 2005,
        message: `${label} updated`,
        details: { ...changed, version: 1 },
      });
      expect(await shown(id)).toEqual({ ...changed, version: 1 });
    });

    it('changes only what PUT gives, and tells who changed it and when', async () => {
      const id = await make({ description: 'kept', ...optional });
      const before = await shown(id);
      own.service.advance(7);
      const bob = await own.service.client({ username: 'bob', scope: 'write' });
      expect(summarize(await bob.put(at(plural, id), { enabled: 0 }))).toBe('2005');
      const changed = { ...before, enabled: false, updater: 'bob', updated_at: before.created_at + 7, version: 1 };
      expect(await shown(id)).toEqual(changed);
      expect(summarize(await bob.put(at(plural, id), {}))).toBe('2005');
      expect(await shown(id)).toEqual({ ...changed, version: 2 });
    });

    const conflict = (version: number) =>
      ['groups', 'assets'].includes(plural) ? { version: expect.stringMatching(/./) } : { version };
    it.each<[version: number | null | undefined, tag: string | undefined, accepted: boolean]>([
      [1, undefined, true],
      [0, undefined, false],
      [2, undefined, false],
      [null, undefined, true],
      [undefined, '"0"', false],
      [undefined, '"1"', true],
      [undefined, 'W/"1"', true],
      [undefined, '"9", "1"', true],
      [undefined, '*', true],
      [undefined, '"one"', false],
      [1, '"1"', true],
      [1, '"0"', false],
      [0, '"1"', false],
      [0, '*', false],
      [1, '*', true],
      [1, '"9", "2"', false],
    ])('lets version %s with If-Match %s change version 1: %s', async (version, tag, accepted) => {
      const id = await make();
      await own.api.put(at(plural, id), { description: 'first' });
      const reply = await own.api.put(
        at(plural, id),
        { description: 'second', version },
        tag === undefined ? {} : { 'If-Match': tag },
      );
      expect(summarize(reply)).toBe(accepted ? '2005' : '4005 version');
      if (!accepted) expect(reply.body.details).toEqual(conflict(1));
      expect(await shown(id)).toMatchObject(
        accepted ? { description: 'second', version: 2 } : { description: 'first', version: 1 },
      );
    });

    it('has an entity tag that changes with the version and answers 304 to who knows it', async () => {
      const id = await make();
      const { headers } = await own.api.get(at(plural, id));
      const tag = headers.etag ?? '';
      expect(tag).toMatch(plural === 'devices' ? /^"0\.[^"]+"$/ : /^"0"$/);
      for (const known of [tag, `W/${tag}`, `"x", ${tag}`, '*']) {
        const reply = await own.api.get(at(plural, id), { 'If-None-Match': known });
        expect([known, reply.status, reply.text, reply.headers.etag]).toEqual([known, 304, '', tag]);
      }
      const changed = await own.api.put(at(plural, id), {}, { 'If-Match': tag });
      expect(changed.headers.etag).toMatch(/^"1/);
      const reply = await own.api.get(at(plural, id), { 'If-None-Match': tag });
      expect([reply.status, reply.headers.etag]).toEqual([200, changed.headers.etag]);
    });

    it('is gone once it is deleted, and its name is free again', async () => {
      const name = fresh();
      const id = await make({ name });
      const reply = await own.api.delete(at(plural, id));
      expect([reply.status, reply.body]).toEqual([200, { code: 2004, message: `${label} deleted`, details: {} }]);
      for (const gone of [own.api.get(at(plural, id)), own.api.put(at(plural, id), {}), own.api.delete(at(plural, id))])
        expect(summarize(await gone)).toBe('4041');
      expect((await own.api.get(`/${plural}/?name=${name}`)).body.total_documents).toBe(0);
      expect(await make({ name })).toBe(`${name}@acme`);
    });

    it('is not there for another account', async () => {
      const id = await make();
      const before = await shown(id);
      const stranger = await own.service.client({ account: 'stranger' });
      for (const refused of [
        stranger.get(at(plural, id)),
        stranger.put(at(plural, id), { description: 'mine' }),
        stranger.delete(at(plural, id)),
      ])
        expect(summarize(await refused)).toBe('4041');
      expect((await stranger.get(`/${plural}/`)).body).toEqual({ total_documents: 0, result: [] });
      expect(await shown(id)).toEqual(before);
    });

    for (const [field, [upper, makeParent]] of Object.entries(parents)) {
      it(`names an ${field} that exists in the account`, async () => {
        const foreign = await makeParent(await own.service.client({ account: 'stranger' }));
        const id = await make();
        const before = await shown(id);
        for (const wrong of ['nobody@acme', foreign]) {
          const details = { [field]: 'does not exist' };
          const { id_group: _, ...rest } = await base();
          expect((await own.api.post(`/${plural}/`, { ...rest, name: fresh(), [field]: wrong })).body).toMatchObject({
            code: 4003,
            details,
          });
          expect((await own.api.put(at(plural, id), { [field]: wrong })).body).toMatchObject({ code: 4003, details });
        }
        expect(await shown(id)).toEqual(before);
      });

      it(`moves beneath another ${field}`, async () => {
        const [from, to] = [await makeParent(own.api), await makeParent(own.api)];
        const { id_group: _, ...rest } = await base();
        const reply = await own.api.post(`/${plural}/`, { ...rest, name: fresh(), [field]: from });
        const id = decodeURIComponent(reply.headers.location?.split('/').at(-2) ?? '');
        const beneath = async (parent: string) => [
          (await own.api.get(at(upper, parent, plural))).body.total_documents,
          (await own.api.get(at(upper, parent, plural, id))).status,
        ];
        expect([await beneath(from), await beneath(to)]).toEqual([
          [1, 200],
          [0, 404],
        ]);
        expect((await own.api.put(at(plural, id), { [field]: to })).body.details).toMatchObject({
          [field]: to,
          version: 1,
        });
        expect([await beneath(from), await beneath(to)]).toEqual([
          [0, 404],
          [1, 200],
        ]);
        // what it left no longer takes it along
        expect(summarize(await own.api.delete(at(upper, from)))).toBe('2004');
        expect((await shown(id))[field]).toBe(to);
      });
    }

    if (!uniqueNames) return;

    it('has a name of its own in the account, and an identifier too', async () => {
      const [name, later] = [fresh(), fresh()];
      const [id, other] = [await make({ name }), await make()];
      const refused = async () => [
        summarize(await own.api.post(`/${plural}/`, { ...(await base()), name })),
        summarize(await own.api.put(at(plural, other), { name: ` ${name} ` })),
      ];
      expect(await refused()).toEqual(['4003 name', '4003 name']);
      expect(summarize(await own.api.put(at(plural, id), { name }))).toBe('2005');
      expect(summarize(await own.api.put(at(plural, id), { name: later }))).toBe('2005');
      // the identifier name@account is still taken, the name is free
      expect(summarize(await own.api.post(`/${plural}/`, { ...(await base()), name }))).toBe('4003 name');
      expect(summarize(await own.api.put(at(plural, other), { name }))).toBe('2005');
      expect(summarize(await own.api.post(`/${plural}/`, { ...(await base()), name: later }))).toBe('4003 name');
      expect(await make({ name: name.toUpperCase() })).toBe(`${name.toUpperCase()}@acme`);
    });
  });
}
