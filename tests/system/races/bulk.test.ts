import { expect, it } from '@jest/globals';
import { useTestService } from '../../support/expect-status.js';
import { findOrphans } from '../../support/orphans.js';
import { runRounds, startLate } from '../../support/race.js';
import { pathOf, type Reply } from '../../support/service.js';

/** Changes of many objects concurrent with requests for single ones (reference/bulk.md#concurrency). */
const ctx = await useTestService();

/** Starts requests with delays of up to 40 turns of the event loop, or a multiple of it, that depend on the round. */
const race = (round: number, spread: number, ...requests: (() => Promise<Reply>)[]) =>
  Promise.all(requests.map((request, index) => startLate((round * (7 + 30 * index)) % (41 * spread), request)));

const idsOf = (reply: Reply) => reply.body.result.map((device: { id_developer: string }) => device.id_developer).sort();
const inGroup = (id: string) => `/devices/?id_group=${encodeURIComponent(id)}`;
const count = 6;

it('deletes what was confirmed, or nothing, while devices are created and moved', async () => {
  const { api, fixtures } = ctx;
  const id_service = await fixtures.service();
  const expected = ['4005 2005', '2004 4041'];
  const until = (seen: ReadonlySet<string>) => expected.every((outcome) => seen.has(outcome));
  const outcomes = await runRounds({ count: 80, concurrent: 1, until }, async (round, spread) => {
    const [from, to] = [await fixtures.group({ id_service }), await fixtures.group({ id_service })];
    const ids = await Promise.all(Array.from({ length: count }, () => fixtures.device({ id_group: from })));
    const [moving = ''] = ids;
    const fresh = `fresh ${round}@acme`;
    const [removed, moved, created] = (await race(
      round,
      spread,
      () => api.delete(`${inGroup(from)}&confirm=${count}`),
      () => api.put(pathOf('devices', moving), { id_group: to }),
      () => api.post('/devices/', { name: `fresh ${round}`, type: 't', id_group: from }),
    )) as [Reply, Reply, Reply];
    expect(created.body.code).toBe(2001);
    const [left, saved] = [idsOf(await api.get(inGroup(from))), idsOf(await api.get(inGroup(to)))];
    expect(saved).toEqual(moved.body.code === 2005 ? [moving] : []);
    if (removed.body.code === 2004) {
      expect(removed.body.details).toEqual({ matched: count, changed: count });
      // either the move and the create came before the deletion, or both after it
      expect(left).toEqual(moved.body.code === 2005 ? [] : [fresh]);
    } else {
      expect([removed.body.code, moved.body.code]).toEqual([4005, 2005]);
      expect([count - 1, count + 1]).toContain(removed.body.details.matched);
      expect(left).toEqual([...ids.slice(1), fresh].sort());
    }
    return `${removed.body.code} ${moved.body.code}`;
  });
  expect(outcomes).toEqual(expect.arrayContaining(expected));
  expect(await findOrphans((plural) => ctx.service.db.collection(plural))).toEqual([]);
});

it('counts one version for each update of 8 concurrent ones, and of streams none', async () => {
  const { api, fixtures, service } = ctx;
  const id_group = await fixtures.group();
  const ids = await Promise.all(Array.from({ length: 40 }, () => fixtures.device({ id_group })));
  const path = `${inGroup(id_group)}&confirm=40`;
  const replies = await Promise.all([
    ...Array.from({ length: 8 }, (_, n) => api.patch(path, { sensor: `s ${n}` })),
    ...ids.map((id) => api.post(pathOf('devices', id, 'streams'), { data: {} })),
    ...ids.map((id) => api.put(pathOf('devices', id), { firmware: '2' })),
  ]);
  expect(replies.slice(0, 8).map(({ body }) => [body.code, body.details])).toEqual(
    Array(8).fill([2005, { matched: 40, changed: 40 }]),
  );
  expect(replies.slice(48).map(({ body }) => body.code)).toEqual(Array(40).fill(2005));
  const stored = await service.db.collection('devices').find({ id_group }).toArray();
  expect(stored.map(({ version, firmware }) => [version, firmware])).toEqual(Array(40).fill([9, '2']));
  for (const { last_stream_at } of stored) expect(last_stream_at).toBe(service.now());
});

it.each(['id_group', 'id_asset'] as const)('leaves no orphan when the new parent is deleted: %s', async (field) => {
  const { api, fixtures, service } = ctx;
  const id_service = await fixtures.service();
  const parents = field === 'id_group' ? 'groups' : 'assets';
  const until = (seen: ReadonlySet<number>) => seen.size > 1;
  const outcomes = await runRounds({ count: 40, concurrent: 1, until }, async (round, spread) => {
    const from = await fixtures.group({ id_service });
    const ids = await Promise.all(Array.from({ length: 4 }, () => fixtures.device({ id_group: from })));
    const target = await (field === 'id_group' ? fixtures.group({ id_service }) : fixtures.asset({ id_group: from }));
    const [changed, removed] = (await race(
      round,
      spread,
      async () => {
        // in every fourth round the deletion has begun
        if (round % 4 === 0) while ((await api.get(pathOf(parents, target))).status === 200);
        return api.patch(`${inGroup(from)}&confirm=4`, { [field]: target });
      },
      () => api.delete(pathOf(parents, target)),
    )) as [Reply, Reply];
    expect(removed.body.code).toBe(2004);
    const { code } = changed.body;
    const left = idsOf(await api.get(inGroup(from)));
    if (code === 4003) expect([changed.body.details, left]).toEqual([{ [field]: 'does not exist' }, ids.sort()]);
    else expect([code, left]).toEqual([2005, []]);
    return code as number;
  });
  expect([...new Set(outcomes)].sort()).toEqual([2005, 4003]);
  expect(await findOrphans((plural) => service.db.collection(plural))).toEqual([]);
});
