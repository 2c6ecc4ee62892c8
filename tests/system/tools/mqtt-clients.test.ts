import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { itWithMosquitto } from '../../support/mosquitto.js';
import { type GivenDevice, type MqttService, password, startMqtt } from '../../support/mqtt.js';

const execute = promisify(execFile);

let mqtt: MqttService;
let device: GivenDevice;

beforeAll(async () => {
  mqtt = await startMqtt();
  device = await (await mqtt.account('acme')).device(['plain/#']);
});
afterAll(() => mqtt.stop());

/** Runs a client of Mosquitto to its end. @returns what it prints */
async function run(program: 'mosquitto_pub' | 'mosquitto_sub', version: string, ...args: string[]): Promise<string> {
  const address = ['-h', '127.0.0.1', '-p', String(mqtt.port), '-V', version];
  const { stdout } = await execute(program, [...address, '-u', device.username, '-P', password, ...args]);
  return stdout.trimEnd();
}

const properties = [
  ...['-D', 'publish', 'content-type', 'text/plain', '-D', 'publish', 'response-topic', 'plain/answer'],
  ...['-D', 'publish', 'correlation-data', 'c-1', '-D', 'publish', 'user-property', 'name', 'value'],
];
const versions = ['mqttv31', 'mqttv311', 'mqttv5'];
const pairs = versions.flatMap((sender) => versions.map((receiver) => [sender, receiver] as const));

itWithMosquitto.each(pairs)('a message of mosquitto_pub with %s reaches mosquitto_sub with %s', async (from, to) => {
  const topic = `plain/${from}/${to}`;
  const added = from === 'mqttv5' ? properties : [];
  for (const qos of ['0', '1', '2'])
    await run('mosquitto_pub', from, '-i', 'sender', '-r', '-q', qos, '-t', `${topic}/${qos}`, '-m', 'text', ...added);
  const format = ['-F', '%t %p %q %r [%C %R %D %P]'];
  const printed = await run('mosquitto_sub', to, '-i', 'receiver', '-q', '2', '-t', `${topic}/+`, '-C', '3', ...format);
  const shown = from === 'mqttv5' && to === 'mqttv5' ? 'text/plain plain/answer c-1 name:value' : '   ';
  expect(printed.split('\n').sort()).toEqual(['0', '1', '2'].map((qos) => `${topic}/${qos} text ${qos} 1 [${shown}]`));
});

itWithMosquitto('mosquitto_sub resumes a session with what it has missed', async () => {
  const session = ['-i', 'stays', '-c', '-x', '100', '-q', '1', '-t', 'plain/session'];
  await run('mosquitto_sub', 'mqttv5', ...session, '-E');
  await run('mosquitto_pub', 'mqttv5', '-q', '1', '-t', 'plain/session', '-m', 'missed');
  expect(await run('mosquitto_sub', 'mqttv5', ...session, '-C', '1')).toBe('missed');
});

itWithMosquitto.each(['mqttv311', 'mqttv5'])('mosquitto_pub with %s shows why it is refused', async (version) => {
  const refused = run('mosquitto_pub', version, '-P', 'wrong horse', '-t', 'plain/x', '-m', 'x');
  await expect(refused).rejects.toMatchObject({ stderr: expect.stringMatching(/bad user name or password/i) });
});

it.each([
  ['mqtt', 4],
  ['mqtt', 5],
  ['ws', 4],
  ['ws', 5],
] as const)(
  'mqtt.js over %s with version %i publishes a stream and gets a message at every QoS',
  async (scheme, version) => {
    const url = scheme === 'ws' ? mqtt.ws : `mqtt://127.0.0.1:${mqtt.port}`;
    const client = await mqtt.connect(device.username, {
      url,
      protocolVersion: version,
      clientId: `${scheme} ${version}`,
    });
    expect(await client.subscribe('plain/js', 2)).toEqual([2]);
    for (const qos of [0, 1, 2] as const) await client.publish('plain/js', `at ${qos}`, { qos });
    await client.received(3);
    expect(client.qos).toEqual([0, 1, 2]);
    await client.publish(`${device.id}/streams`, { data: { [scheme]: version } });
    expect(await mqtt.stored(device.id)).toContainEqual({ [scheme]: version });
    await client.end();
  },
);
