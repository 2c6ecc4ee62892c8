import { execFileSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { checkIngest, find, perform } from './harness.js';

/** The real mosquitto with a password and an access list of its own, and the service behind it. */
await perform('mosquitto', async (stage) => {
  const { folder, check } = stage;
  const port = await stage.port();
  await stage.first();
  const sensor = await stage.device('acme', 'sensor.1');
  const other = await stage.device('other', 'sensor');
  const passwords = join(folder, 'passwords');
  await writeFile(passwords, '', { mode: 0o600 });
  for (const { username, password } of [sensor, { username: 'bridge', password: stage.secret }])
    execFileSync(find('mosquitto_passwd') ?? 'mosquitto_passwd', ['-b', passwords, username, password]);
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
    // who starts it runs it: it could not read the files as another user
    ...(process.getuid?.() === 0 ? ['user root'] : []),
  ];
  await writeFile(join(folder, 'mosquitto.conf'), `${settings.join('\n')}\n`);
  stage.run(find('mosquitto') ?? '', ['-c', join(folder, 'mosquitto.conf')], process.env);
  const login = { username: sensor.username, password: sensor.password };
  const up = await stage.until(async () => (await stage.connect(port, login)) !== undefined, 10_000);
  await check('mosquitto runs', up);
  await check(
    'a wrong password is refused',
    (await stage.connect(port, { ...login, password: 'wrong' })) === undefined,
  );
  await check('nobody gets in without a login', (await stage.connect(port, {})) === undefined);
  await checkIngest(stage, { MQTT_BRIDGE_URL: `mqtt://bridge:${stage.secret}@127.0.0.1:${port}` }, port, sensor);
  const client = await stage.connect(port, login);
  await client?.publishAsync(`${other.id}/streams`, '{"n":1}', { qos: 1 });
  await sleep(1000);
  await check('a stream in the name of another device is not stored', (await stage.stored(other.id)).length === 0);
});
