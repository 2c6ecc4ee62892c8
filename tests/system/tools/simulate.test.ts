import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { simulate } from '../../../demo/simulate.js';
import { type MqttService, startMqtt } from '../../support/mqtt.js';
import { waitUntil } from '../../support/process.js';
import { pathOf } from '../../support/service.js';

/** Commands and state of the devices of `npm run simulate`. */
let mqtt: MqttService;
beforeAll(async () => {
  mqtt = await startMqtt();
});
afterAll(() => mqtt.stop());

it('simulated devices answer commands, and report what is desired', async () => {
  const { api } = await mqtt.account('acme');
  const { key } = await mqtt.key('acme', 'write');
  const ending = new AbortController();
  const lines: string[] = [];
  // it takes the time from the header Date, which has gone on while the service started
  mqtt.service.advance(60);
  const simulating = simulate({
    ...{ url: mqtt.service.url, key, mqtt: `mqtt://127.0.0.1:${mqtt.port}`, devices: 1, rate: 10, http_share: 0 },
    ...{ seconds: undefined, signal: ending.signal, print: (line: string) => lines.push(line), showProgress() {} },
  });
  const device = 'simulator-00001@acme';
  await waitUntil(() => lines.some((line) => line.startsWith('1 devices connected')));
  await api.patch(pathOf('devices', device, 'state'), { interval: 60, led: { on: true } });
  const file = Buffer.from('period: 5').toString('base64');
  await api.post(pathOf('devices', device, 'deviceconfigs'), { name: 'settings', version: '1.0', file });
  await api.put(pathOf('devices', device, 'deviceconfigs', 'settings', 'desired'), { version: '1.0' });
  const { id } = (await api.post(pathOf('devices', device, 'commands'), { name: 'restart' })).body.details;
  const command = async () => (await api.get(pathOf('devices', device, 'commands', id))).body;
  const state = async () => (await api.get(pathOf('devices', device, 'state'))).body;
  await waitUntil(async () => (await command()).status === 'done' && Object.keys((await state()).delta).length === 0);
  expect((await command()).result).toMatchObject({ temperature_c: expect.any(Number) });
  expect((await state()).reported).toMatchObject({
    interval: 60,
    led: { on: true },
    configs: { settings: { version: '1.0' } },
  });
  ending.abort();
  expect(await simulating).toMatchObject({ failed: 0, missing: 0 });
});
