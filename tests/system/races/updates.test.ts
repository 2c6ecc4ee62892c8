import { describe, expect, it } from '@jest/globals';
import { codesOf, repeat, useTestService } from '../../support/expect-status.js';
import { pathOf } from '../../support/service.js';

const ctx = await useTestService();

/** Types with an update that is a single write, and with one that is a read-modify-write. */
const changes = [
  ['projects', () => ctx.fixtures.project(), async () => (index: number) => ({ description: `change ${index}` })],
  ['services', () => ctx.fixtures.service(), async () => (index: number) => ({ description: `change ${index}` })],
  [
    'services',
    () => ctx.fixtures.service(),
    async () => {
      const projects = await repeat(2, () => ctx.fixtures.project());
      return (index: number) => ({ description: `change ${index}`, id_project: projects[index % 2] });
    },
  ],
  ['groups', () => ctx.fixtures.group(), async () => (index: number) => ({ description: `change ${index}` })],
  ['assets', () => ctx.fixtures.asset(), async () => (index: number) => ({ description: `change ${index}` })],
  ['models', () => ctx.fixtures.model(), async () => (index: number) => ({ description: `change ${index}` })],
  ['devices', () => ctx.fixtures.device(), async () => (index: number) => ({ description: `change ${index}` })],
  [
    'devices',
    () => ctx.fixtures.device(),
    async () => (index: number) => ({ description: `change ${index}`, lon: index, lat: index, properties: { index } }),
  ],
] as const;

describe.each(changes)('%s (case %#)', (plural, create, makeBodies) => {
  it('accepts exactly one of 16 concurrent updates with the same version', async () => {
    const id = await create();
    const bodyOf = await makeBodies();
    const replies = await repeat(16, (index) => ctx.api.put(pathOf(plural, id), { ...bodyOf(index), version: 0 }));
    expect(codesOf(replies)).toEqual([2005, ...Array(15).fill(4005)]);
    const winner = replies.findIndex(({ body }) => body.code === 2005);
    const { version, description } = (await ctx.api.get(pathOf(plural, id))).body;
    expect([version, description]).toEqual([1, `change ${winner}`]);
    const versionDetail = plural === 'groups' || plural === 'assets' ? expect.any(String) : 1;
    for (const { body } of replies) if (body.code === 4005) expect(body.details).toEqual({ version: versionDetail });
  });

  it('applies 16 concurrent updates without a version one after the other', async () => {
    const id = await create();
    const bodyOf = await makeBodies();
    const replies = await repeat(16, (index) => ctx.api.put(pathOf(plural, id), bodyOf(index)));
    expect(codesOf(replies)).toEqual(Array(16).fill(2005));
    expect(replies.map(({ body }) => body.details.version).sort((a, b) => a - b)).toEqual(
      Array.from({ length: 16 }, (_, index) => index + 1),
    );
    const last = replies.find(({ body }) => body.details.version === 16);
    expect((await ctx.api.get(pathOf(plural, id))).body).toEqual(last?.body.details);
  });
});

it('accepts exactly one of 16 concurrent updates with the same If-Match', async () => {
  const id = await ctx.fixtures.group();
  const replies = await repeat(16, (index) =>
    ctx.api.put(pathOf('groups', id), { name: `n ${index}` }, { 'If-Match': '"0"' }),
  );
  expect(codesOf(replies)).toEqual([2005, ...Array(15).fill(4005)]);
  expect((await ctx.api.get(pathOf('groups', id))).body.version).toBe(1);
});

it('loses no field when concurrent updates change different ones', async () => {
  const id = await ctx.fixtures.device();
  const fields = {
    description: 'd',
    sensor: 's',
    firmware: 'f',
    checksum: 'c'.repeat(40),
    frequency_stream: 7,
    lon: 1,
  };
  await ctx.api.put(pathOf('devices', id), { lon: 0, lat: 2 });
  const replies = await Promise.all(
    Object.entries(fields).map(([field, value]) => ctx.api.put(pathOf('devices', id), { [field]: value })),
  );
  expect(codesOf(replies)).toEqual(Array(6).fill(2005));
  expect((await ctx.api.get(pathOf('devices', id))).body).toMatchObject({ ...fields, lat: 2, version: 7 });
});

it('never resurrects an object deleted during updates', async () => {
  const rounds = await repeat(50, async (index) => {
    const id = await ctx.fixtures.project();
    const [deleted, ...updated] = await Promise.all([
      ctx.api.delete(pathOf('projects', id)),
      ...Array.from({ length: 4 }, (_, n) => ctx.api.put(pathOf('projects', id), { description: `${index}.${n}` })),
    ]);
    for (const { body } of updated) expect([2005, 4041]).toContain(body.code);
    return [deleted.body.code, (await ctx.api.get(pathOf('projects', id))).status];
  });
  expect(rounds).toEqual(Array(50).fill([2004, 404]));
});

it('answers each update of a mixed batch with its own outcome', async () => {
  const names = await repeat(30, async (index) => `taken ${index}`);
  const ids = await repeat(30, (index) => ctx.fixtures.group({ name: names[index] }));
  const expectedCodes = [2005, 4005, 4003, 4041] as const;
  const replies = await repeat(30, (index) => {
    const [group = '', description] = [ids[index], `change ${index}`];
    const bodies = [
      { version: 0, description },
      { version: 7, description },
      { version: 0, name: names[index - 1] },
      { version: 0, description },
    ];
    return ctx.api.put(pathOf('groups', index % 4 === 3 ? 'nobody@acme' : group), bodies[index % 4]);
  });
  expect(replies.map(({ body }) => body.code)).toEqual(replies.map((_reply, index) => expectedCodes[index % 4]));
  for (const [index, { body, headers }] of replies.entries()) {
    const { description, version } = (await ctx.api.get(pathOf('groups', ids[index] ?? ''))).body;
    expect([description, version]).toEqual(index % 4 === 0 ? [`change ${index}`, 1] : [undefined, 0]);
    if (index % 4 === 0) expect([body.details.description, headers.etag]).toEqual([`change ${index}`, '"1"']);
    expect(JSON.stringify(body)).not.toMatch(/marks|last_request_id/);
  }
});
