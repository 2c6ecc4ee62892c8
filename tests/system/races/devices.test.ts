import { expect, it } from '@jest/globals';
import { useTestService } from '../../support/expect-status.js';
import { findOrphans } from '../../support/orphans.js';
import { leadOf, runRounds, startLate } from '../../support/race.js';
import { pathOf } from '../../support/service.js';

const ctx = await useTestService();
const created = { code: 2001, message: 'stream created', details: {} };
const missing = { code: 4003, message: 'validation error', details: { '1.device': 'does not exist' } };

const id_group = await ctx.fixtures.group();
/** Stays. */
const device = await ctx.fixtures.device({ id_group });

it('leaves no stream that was posted during its deletion, 200 rounds', async () => {
  const until = (seen: ReadonlySet<string>) => seen.size === 4;
  const outcomes = await runRounds<string>({ count: 200, concurrent: 20, until }, async (index, spread) => {
    const id = await ctx.fixtures.device({ id_group });
    const lead = leadOf(index, spread);
    const [posted, mixed, removed] = await Promise.all([
      startLate(-lead, () => ctx.api.post(pathOf('devices', id, 'streams'), [{ data: {} }, { data: {}, _t: 'sta' }])),
      startLate(-lead, () =>
        ctx.api.post('/streams/', [
          { device, data: {} },
          { device: id, data: {} },
        ]),
      ),
      startLate(lead, () => ctx.api.delete(pathOf('devices', id))),
    ]);
    expect(removed.body.code).toBe(2004);
    expect([created, { code: 4041, message: 'not found', details: {} }]).toContainEqual(posted.body);
    expect([{ response: 'OK' }, missing]).toContainEqual(mixed.body);
    return [`posted ${posted.status}`, `mixed ${mixed.status}`];
  });
  expect([...new Set(outcomes)].sort()).toEqual(['mixed 200', 'mixed 400', 'posted 200', 'posted 404']);
  expect(await findOrphans(ctx.service.db.collection)).toEqual([]);
});

it('leaves no credentials or topics of a device that goes meanwhile, 100 rounds', async () => {
  const until = (seen: ReadonlySet<number>) => seen.size > 1;
  const outcomes = await runRounds<number>({ count: 100, concurrent: 20, until }, async (index, spread) => {
    const id = await ctx.fixtures.device({ id_group });
    const lead = leadOf(index, spread);
    const replies = await Promise.all([
      startLate(-lead, () => ctx.api.post(pathOf('mqttdevices', id, 'topics'), { name: 'a' })),
      startLate(-lead, () =>
        ctx.api.post(pathOf('mqttdevices', id, 'credentials'), { username: id, password: 'password' }),
      ),
      startLate(lead, () => ctx.api.delete(pathOf('devices', id))),
    ]);
    expect(replies[2].body.code).toBe(2004);
    for (const plural of ['mqttcredentials', 'mqtttopics'])
      expect(await ctx.service.db.collection(plural).countDocuments({ device: id })).toBe(0);
    return replies.slice(0, 2).map(({ body }) => body.code);
  });
  expect([...new Set(outcomes)].sort()).toEqual([2001, 4041]);
});
