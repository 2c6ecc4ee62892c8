import { execFileSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { findFreePort, findProgram } from '../../support/service-process.js';
import { checkIngest, runChecks } from './harness.js';

// Runs the service behind a mosquitto with a password file and an access list.
await runChecks('mosquitto', async (harness) => {
  const { folder, check, becomesTrue, connect, createDevice, listStored } = harness;
  const port = await findFreePort();
  await harness.startFirst();
  const sensor = await createDevice('acme', 'sensor.1');
  const otherAccountDevice = await createDevice('other', 'sensor');
  const passwords = join(folder, 'passwords');
  await writeFile(passwords, '', { mode: 0o600 });
  for (const { username, password } of [sensor, { username: 'bridge', password: harness.secret }])
    execFileSync(findProgram('mosquitto_passwd') ?? 'mosquitto_passwd', ['-b', passwords, username, password]);
  const access = [
    'user bridge',
    'topic read +/streams',
    'topic read +/status',
    `user ${sensor.username}`,
    `topic readwrite ${sensor.id}/streams`,
    `topic readwrite ${sensor.id}/status`,
  ];
  await writeFile(join(folder, 'access'), `${access.join('\n')}\n`, { mode: 0o600 });
  const settings = [
    `listener ${port} 127.0.0.1`,
    'allow_anonymous false',
    `password_file ${passwords}`,
    `acl_file ${join(folder, 'access')}`,
    'max_queued_messages 100000',
    // otherwise mosquitto changes to its own user, which cannot read these files
    ...(process.getuid?.() === 0 ? ['user root'] : []),
  ];
  await writeFile(join(folder, 'mosquitto.conf'), `${settings.join('\n')}\n`);
  harness.run(findProgram('mosquitto') ?? '', ['-c', join(folder, 'mosquitto.conf')], process.env);
  const login = { username: sensor.username, password: sensor.password };
  const isUp = await becomesTrue(async () => (await connect(port, login)) !== undefined, 10_000);
  await check('mosquitto runs', isUp);
  await check('a wrong password is rejected', (await connect(port, { ...login, password: 'wrong' })) === undefined);
  await check('a client without credentials is rejected', (await connect(port, {})) === undefined);
  await checkIngest(harness, { MQTT_BRIDGE_URL: `mqtt://bridge:${harness.secret}@127.0.0.1:${port}` }, port, sensor);
  const client = await connect(port, login);
  await client?.publishAsync(`${otherAccountDevice.id}/streams`, '{"n":1}', { qos: 1 });
  await sleep(1000);
  const storedForOther = await listStored(otherAccountDevice.id);
  await check('a stream in the name of another device is not stored', storedForOther.length === 0);
});
