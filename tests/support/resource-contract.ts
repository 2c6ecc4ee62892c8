import { describe, expect, it } from '@jest/globals';
import { summarize, type TestContext } from './expect-status.js';
import { type Api, pathOf } from './service.js';

type Json = Record<string, unknown>;

export const emoji = '\u{1F6F0}';
export const loneSurrogate = '\ud83d';

/** A field with values that bodies may hold and values that are rejected with 4003. */
export type FieldRule = readonly [field: string, accepted: readonly unknown[], rejected: readonly unknown[]];

const validTexts = (max: number): FieldRule[1] => ['x', ' x\n', 'x'.repeat(max), emoji.repeat(max)];
const invalidTexts = (max: number): FieldRule[2] => [
  'x'.repeat(max + 1),
  emoji.repeat(max + 1),
  'a\0',
  loneSurrogate,
  5,
  true,
  ['x'],
  {},
];

/** A text of 1 to `max` code points, stored as given (reference/identifiers.md#text). */
export function textRule(field: string, max: number): FieldRule {
  return [field, validTexts(max), ['', ...invalidTexts(max)]];
}

/** `blank`: values that count as null for devices (reference/devices.md#parents). */
const identifierRule =
  (...blank: string[]) =>
  (field: string): FieldRule => [field, [], [...blank, 'noat', 'a\0@b', 5, true, [], {}]];

/** Limits of `properties` (reference/identifiers.md#free-form-objects); hierarchy.test.ts covers unusual keys. */
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

const invisibleNames = [
  ...['\u200b', '\u00ad', '\u2060\u200d', ' \u200e ', '\u3164', '\u115f\u1160', '\uffa0', '\u2800', '\ufe0f', '\u034f'],
  ...['\u180e', '\u0378', '\u{e0001}', '\u{e0100}', '\u{1d159}', '\u2061\u00a0\u2063'],
];

/** Fields of every resource (reference/resources.md#common-fields). */
export const commonRules: readonly FieldRule[] = [
  [
    'name',
    ['n', 'n'.repeat(50), emoji.repeat(50), 'a@b', 'a/b%2F#?&+', '.'],
    ['', '  ', 'n'.repeat(51), emoji.repeat(51), 'a\u0007b', 'a\u0085b', 'a\0', loneSurrogate, 5, true, ['n'], {}],
  ],
  // zero-width, blank and unassigned characters, fillers and variation selectors: seen only beside another
  ['name', ['\u200bn', '\u3164\u00e9', '\u{1f468}\u200d\u{1f33e}', '\u2060.'], invisibleNames],
  ['description', ['', ...validTexts(200)], invalidTexts(200)],
  ['enabled', [0, 1, true, false], [2, -1, '1', 'true', '', [], {}]],
];

interface ResourceCase {
  /** Path segment. */
  plural: string;
  /** The resource in messages such as `Project created`. */
  label: string;
  /** Creates the required fields of a body, without `name`. */
  required(): Promise<Json>;
  /** A value for every optional field that is not common to all resources. */
  optional?: Json;
  rules?: readonly FieldRule[];
  /** Fields that refer to a parent, with its path segment and a function that creates one. */
  parents?: Readonly<Record<string, readonly [plural: string, make: (api: Api) => Promise<string>]>>;
  /** True if names are unique in an account (reference/identifiers.md#names). */
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

/** Declares the tests that every resource passes (reference/resources.md#operations). */
export function describeResourceContract(
  ctx: TestContext,
  { plural, label, required, optional = {}, rules = [], parents = {}, uniqueNames = true }: ResourceCase,
): void {
  const readOnly: Json = { ...serviceFields };
  if (plural !== 'devices') delete readOnly.status;
  let names = 0;
  let cached: Promise<Json> | undefined;
  const requiredBody = () => {
    cached ??= required();
    return cached;
  };
  const uniqueName = () => `resource ${++names}`;

  async function create(fields: Json = {}, api: Api = ctx.api): Promise<string> {
    const name = fields.name ?? uniqueName();
    const reply = await api.post(`/${plural}/`, { ...(await requiredBody()), name, ...fields });
    if (summarize(reply) !== '2001') throw new Error(reply.text);
    return decodeURIComponent(reply.headers.location?.split('/').at(-2) ?? '');
  }
  const show = async (id: string) => (await ctx.api.get(pathOf(plural, id))).body;
  const count = async () => (await ctx.api.get(`/${plural}/?max=1`)).body.total_documents;

  describe(`a ${label}, like every resource`, () => {
    it.each([
      ...commonRules,
      ...rules,
      ...Object.keys(parents).map(plural === 'devices' ? identifierRule() : identifierRule('')),
    ])(
      'stores valid values of %s as given and rejects others with 4003, on POST and PUT',
      async (field, accepted, rejected) => {
        const id = await create();
        for (const value of accepted) {
          const stored = field === 'enabled' ? Boolean(value) : value;
          const created = await create({ [field]: value });
          expect((await show(created))[field]).toEqual(stored);
          if (field === 'name') await ctx.api.delete(pathOf(plural, created));
          const changed = await ctx.api.put(pathOf(plural, id), { [field]: value });
          expect([summarize(changed), changed.body.details[field]]).toEqual(['2005', stored]);
          expect((await show(id))[field]).toEqual(stored);
        }
        const [before, countBefore] = [await show(id), await count()];
        const { id_group, ...rest } = await requiredBody();
        const others = id_group === undefined || field in parents ? rest : { ...rest, id_group };
        for (const value of rejected) {
          // JSON.stringify sends a lone surrogate as an escape
          expect([
            value,
            summarize(await ctx.api.post(`/${plural}/`, { name: uniqueName(), ...others, [field]: value })),
          ]).toEqual([value, `4003 ${field}`]);
          expect([value, summarize(await ctx.api.put(pathOf(plural, id), { [field]: value }))]).toEqual([
            value,
            `4003 ${field}`,
          ]);
        }
        expect([await show(id), await count()]).toEqual([before, countBefore]);
      },
    );

    it('trims names', async () => {
      const name = uniqueName();
      const id = await create({ name: ` \t${name}\n ` });
      expect([id, (await show(id)).name]).toEqual([`${name}@acme`, name]);
      expect(summarize(await ctx.api.put(pathOf(plural, id), { name: ` ${name}!  ` }))).toBe('2005');
      expect((await show(id)).name).toBe(`${name}!`);
    });

    it('keeps its identifier when renamed', async () => {
      const [name, other] = [uniqueName(), uniqueName()];
      const id = await create({ name });
      expect((await ctx.api.put(pathOf(plural, id), { name: other })).body.details).toMatchObject({
        id_developer: `${name}@acme`,
        name: other,
      });
      expect((await ctx.api.get(pathOf(plural, `${other}@acme`))).status).toBe(404);
    });

    it('reports all invalid fields together', async () => {
      const invalid = {
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
      expect(summarize(await ctx.api.post(`/${plural}/`, { ...(await requiredBody()), ...invalid }))).toBe(
        `4003 ${faults.join(' ')}`,
      );
      const put = await ctx.api.put(pathOf(plural, await create()), { version: -1, ...invalid });
      expect(summarize(put)).toBe(`4003 ${[...faults, 'version'].join(' ')}`);
    });

    it('rejects a missing required field with 4003', async () => {
      const completeBody: Json = { name: uniqueName(), ...(await requiredBody()) };
      const id = await create();
      const before = await show(id);
      for (const field of Object.keys(completeBody)) {
        const expected = field === 'id_group' && plural === 'devices' ? '4003 id_asset id_group' : `4003 ${field}`;
        const { [field]: _, ...rest } = completeBody;
        expect(summarize(await ctx.api.post(`/${plural}/`, rest))).toBe(expected);
        expect(summarize(await ctx.api.post(`/${plural}/`, { ...rest, [field]: null }))).toBe(expected);
        expect(summarize(await ctx.api.put(pathOf(plural, id), { [field]: null }))).toBe(`4003 ${field}`);
      }
      expect(await show(id)).toEqual(before);
    });

    it('treats null as absent on POST and as removal or reset to the default on PUT', async () => {
      const plain = await show(await create());
      const sent: Json = { description: 'd', enabled: false, ...optional };
      const nulls = Object.fromEntries(Object.keys(sent).map((field) => [field, null]));
      const expected = { ...plain, name: expect.anything(), id_developer: expect.anything() };
      expect(await show(await create(nulls))).toEqual(expected);
      const id = await create(sent);
      expect(await show(id)).toMatchObject(sent);
      expect(summarize(await ctx.api.put(pathOf(plural, id), nulls))).toBe('2005');
      expect(await show(id)).toEqual({ ...expected, version: 1 });
    });

    it('accepts and ignores read-only fields', async () => {
      const id = await create({ ...readOnly, version: 'x' });
      const before = await show(id);
      expect(before).toMatchObject({
        owner: 'alice',
        updater: 'alice',
        created_at: ctx.service.now(),
        updated_at: ctx.service.now(),
        version: 0,
      });
      expect(summarize(await ctx.api.put(pathOf(plural, id), readOnly))).toBe('2005');
      expect(await show(id)).toEqual({ ...before, version: 1 });
    });

    it('accepts the object that GET returned, with changes', async () => {
      const id = await create({ description: 'before', ...optional });
      const shown = await show(id);
      const changed = { ...shown, description: 'after' };
      expect((await ctx.api.put(pathOf(plural, id), changed)).body).toEqual({
        code: 2005,
        message: `${label} updated`,
        details: { ...changed, version: 1 },
      });
      expect(await show(id)).toEqual({ ...changed, version: 1 });
    });

    it('changes only the fields that PUT sends, and sets updater and updated_at', async () => {
      const id = await create({ description: 'kept', ...optional });
      const before = await show(id);
      ctx.service.advance(7);
      const bob = await ctx.service.client({ username: 'bob', scope: 'write' });
      expect(summarize(await bob.put(pathOf(plural, id), { enabled: 0 }))).toBe('2005');
      const changed = { ...before, enabled: false, updater: 'bob', updated_at: before.created_at + 7, version: 1 };
      expect(await show(id)).toEqual(changed);
      expect(summarize(await bob.put(pathOf(plural, id), {}))).toBe('2005');
      expect(await show(id)).toEqual({ ...changed, version: 2 });
    });

    const conflict = (version: number) =>
      ['groups', 'assets'].includes(plural) ? { version: expect.stringMatching(/./) } : { version };
    it.each<[version: number | null | undefined, tag: string | undefined, accepted: boolean | '4004']>([
      [1, undefined, true],
      [0, undefined, false],
      [2, undefined, false],
      [null, undefined, true],
      [undefined, '"0"', false],
      [undefined, '"1"', true],
      [undefined, 'W/"1"', true],
      [undefined, '"9", "1"', true],
      [undefined, '*', true],
      [undefined, '"1-gzip"', true],
      [undefined, 'W/"1.cafe--br"', true],
      [undefined, '"0-gzip"', false],
      [undefined, ',"9",, "1",', true],
      [undefined, '"one"', '4004'],
      [undefined, '1', '4004'],
      [undefined, '"11', '4004'],
      [undefined, '"1gzip"', '4004'],
      [undefined, '"1", 1', '4004'],
      [undefined, 'w/"1"', '4004'],
      [undefined, ' ', '4004'],
      [undefined, '*, x', '4004'],
      [1, '1', '4004'],
      [1, '"1-gzip"', true],
      [0, '"1-gzip"', false],
      [1, '"1"', true],
      [1, '"0"', false],
      [0, '"1"', false],
      [0, '*', false],
      [1, '*', true],
      [1, '"9", "2"', false],
    ])('update of version 1 with version %s and If-Match %s: accepted %s', async (version, tag, accepted) => {
      const id = await create();
      await ctx.api.put(pathOf(plural, id), { description: 'first' });
      const reply = await ctx.api.put(
        pathOf(plural, id),
        { description: 'second', version },
        tag === undefined ? {} : { 'If-Match': tag },
      );
      const refusal = accepted === '4004' ? '4004 If-Match' : '4005 version';
      expect(summarize(reply)).toBe(accepted === true ? '2005' : refusal);
      if (accepted === false) expect(reply.body.details).toEqual(conflict(1));
      expect(await show(id)).toMatchObject(
        accepted === true ? { description: 'second', version: 2 } : { description: 'first', version: 1 },
      );
    });

    it('has an entity tag that changes with the version, and answers 304 when it matches', async () => {
      const id = await create();
      const { headers } = await ctx.api.get(pathOf(plural, id));
      const tag = headers.etag ?? '';
      expect(tag).toMatch(plural === 'devices' ? /^"0\.[^"]+"$/ : /^"0"$/);
      const changedByProxies = [tag.replace(/"$/, '-gzip"'), `W/${tag.replace(/"$/, '--br"')}`];
      for (const candidate of [tag, `W/${tag}`, `"x", ${tag}`, '*', ...changedByProxies]) {
        const reply = await ctx.api.get(pathOf(plural, id), { 'If-None-Match': candidate });
        expect([candidate, reply.status, reply.text, reply.headers.etag]).toEqual([candidate, 304, '', tag]);
      }
      const changed = await ctx.api.put(pathOf(plural, id), {}, { 'If-Match': tag });
      expect(changed.headers.etag).toMatch(/^"1/);
      for (const candidate of [tag, ...changedByProxies, '1', 'x']) {
        const reply = await ctx.api.get(pathOf(plural, id), { 'If-None-Match': candidate });
        expect([candidate, reply.status, reply.headers.etag]).toEqual([candidate, 200, changed.headers.etag]);
      }
    });

    it('answers 404 once deleted, and its name is free again', async () => {
      const name = uniqueName();
      const id = await create({ name });
      const reply = await ctx.api.delete(pathOf(plural, id));
      expect([reply.status, reply.body]).toEqual([200, { code: 2004, message: `${label} deleted`, details: {} }]);
      for (const attempt of [
        ctx.api.get(pathOf(plural, id)),
        ctx.api.put(pathOf(plural, id), {}),
        ctx.api.delete(pathOf(plural, id)),
      ])
        expect(summarize(await attempt)).toBe('4041');
      expect((await ctx.api.get(`/${plural}/?name=${name}`)).body.total_documents).toBe(0);
      expect(await create({ name })).toBe(`${name}@acme`);
    });

    for (const [field, [parentPlural, makeParent]] of Object.entries(parents)) {
      it(`rejects an ${field} that does not exist in the account`, async () => {
        const foreign = await makeParent(await ctx.service.client({ account: 'stranger' }));
        const id = await create();
        const before = await show(id);
        for (const missing of ['nobody@acme', foreign]) {
          const details = { [field]: 'does not exist' };
          const { id_group: _, ...rest } = await requiredBody();
          expect(
            (await ctx.api.post(`/${plural}/`, { ...rest, name: uniqueName(), [field]: missing })).body,
          ).toMatchObject({ code: 4003, details });
          expect((await ctx.api.put(pathOf(plural, id), { [field]: missing })).body).toMatchObject({
            code: 4003,
            details,
          });
        }
        expect(await show(id)).toEqual(before);
      });

      it(`moves to another ${field}`, async () => {
        const [from, to] = [await makeParent(ctx.api), await makeParent(ctx.api)];
        const { id_group: _, ...rest } = await requiredBody();
        const reply = await ctx.api.post(`/${plural}/`, { ...rest, name: uniqueName(), [field]: from });
        const id = decodeURIComponent(reply.headers.location?.split('/').at(-2) ?? '');
        const childrenOf = async (parent: string) => [
          (await ctx.api.get(pathOf(parentPlural, parent, plural))).body.total_documents,
          (await ctx.api.get(pathOf(parentPlural, parent, plural, id))).status,
        ];
        expect([await childrenOf(from), await childrenOf(to)]).toEqual([
          [1, 200],
          [0, 404],
        ]);
        expect((await ctx.api.put(pathOf(plural, id), { [field]: to })).body.details).toMatchObject({
          [field]: to,
          version: 1,
        });
        expect([await childrenOf(from), await childrenOf(to)]).toEqual([
          [0, 404],
          [1, 200],
        ]);
        // deleting the old parent no longer deletes it
        expect(summarize(await ctx.api.delete(pathOf(parentPlural, from)))).toBe('2004');
        expect((await show(id))[field]).toBe(to);
      });
    }

    if (!uniqueNames) return;

    it('has a unique name and a unique identifier in the account', async () => {
      const [name, later] = [uniqueName(), uniqueName()];
      const [id, other] = [await create({ name }), await create()];
      const attempts = async () => [
        summarize(await ctx.api.post(`/${plural}/`, { ...(await requiredBody()), name })),
        summarize(await ctx.api.put(pathOf(plural, other), { name: ` ${name} ` })),
      ];
      expect(await attempts()).toEqual(['4003 name', '4003 name']);
      expect(summarize(await ctx.api.put(pathOf(plural, id), { name }))).toBe('2005');
      expect(summarize(await ctx.api.put(pathOf(plural, id), { name: later }))).toBe('2005');
      // the identifier name@account is still taken, the name is free
      expect(summarize(await ctx.api.post(`/${plural}/`, { ...(await requiredBody()), name }))).toBe('4003 name');
      expect(summarize(await ctx.api.put(pathOf(plural, other), { name }))).toBe('2005');
      expect(summarize(await ctx.api.post(`/${plural}/`, { ...(await requiredBody()), name: later }))).toBe(
        '4003 name',
      );
      expect(await create({ name: name.toUpperCase() })).toBe(`${name.toUpperCase()}@acme`);
    });
  });
}
