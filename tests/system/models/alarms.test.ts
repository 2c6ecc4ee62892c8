import { expect, it } from '@jest/globals';
import { createDeviceModel, createRandomStreams, modelRules } from '../../../scripts/checks/alarm-model.js';
import { useTestService } from '../../support/expect-status.js';
import { type ListedEvent, waitForEvents } from '../../support/logged-events.js';
import { createRandom } from '../../support/random.js';
import { pathOf } from '../../support/service.js';

const ctx = await useTestService({ eventLog: true });
const devices = 3;
const steps = 40;

it('the log and the stored alarms are those of a plain model of the rules', async () => {
  const id_group = await ctx.fixtures.group();
  for (const rule of modelRules)
    expect((await ctx.api.post('/alarmrules/', { ...rule, severity: 'info', id_group })).body.code).toBe(2001);
  const base = ctx.service.now() - 10_000;
  const runs = Array.from({ length: devices }, async (_, index) => {
    // of its own: what a device sends does not depend on the order in which the requests of others end
    const random = createRandom(20_261_124 + index);
    const device = await ctx.fixtures.device({ id_group });
    const model = createDeviceModel(modelRules);
    for (let step = 0; step < steps; step++) {
      const streams = createRandomStreams(random, base + step);
      expect((await ctx.api.post(pathOf('devices', device, 'streams'), streams)).body.code).toBe(2001);
      model.receive(streams);
      if (random() < 0.2) await changeSome(device, model, random);
    }
    return { device, model };
  });
  for (const { device, model } of await Promise.all(runs)) {
    const expected = modelRules.map(({ name }) => [name, model.transitionsOf(name)]);
    const total = expected.reduce((sum, [, kinds]) => sum + (kinds?.length ?? 0), 0);
    const events = await waitForEvents(ctx.api, `resource=alarm&id_developer=${encodeURIComponent(device)}`, total);
    expect(modelRules.map(({ name }) => [name, kindsOf(events, name)])).toEqual(expected);
    const alarms = (await ctx.api.get(`${pathOf('devices', device, 'alarms')}?order=1`)).body.result;
    for (const { name } of modelRules) {
      const own = alarms.filter(({ rule }: { rule: string }) => rule === `${name}@acme`);
      expect(own.filter(({ state }: { state: string }) => state !== 'closed')).toHaveLength(model.isOpen(name) ? 1 : 0);
      expect(own).toHaveLength(model.transitionsOf(name).filter((kind) => kind === 'raised').length);
      for (const alarm of own) expect(events.findLast(({ data }) => data?.id === alarm.id)?.data).toEqual(alarm);
    }
  }
});

function kindsOf(events: readonly ListedEvent[], rule: string): string[] {
  return events.filter(({ data }) => data?.rule === `${rule}@acme`).map(({ type }) => type.slice('alarm.'.length));
}

/** Acknowledges or closes an alarm that is open, in the service and in the model. */
async function changeSome(device: string, model: ReturnType<typeof createDeviceModel>, random: () => number) {
  const rule = modelRules[Math.floor(random() * modelRules.length)]?.name ?? '';
  const state = random() < 0.5 ? 'acknowledged' : 'closed';
  const query = `?state=active,acknowledged&rule=${encodeURIComponent(`${rule}@acme`)}`;
  const [open] = (await ctx.api.get(pathOf('devices', device, 'alarms') + query)).body.result;
  expect(open !== undefined).toBe(model.isOpen(rule));
  if (open === undefined) return;
  expect((await ctx.api.put(pathOf('alarms', open.id), { state })).body.code).toBe(2005);
  model.change(rule, state);
}
