// A device with its own key: stores the configuration files that it shall have, answers its commands, and publishes a
// stream over MQTT.
//
//   npm run --silent keys -- create --account demo --user field --scope device --id-device 'Bench 2@demo'
//   DEVICE_PLATFORM_URL=http://127.0.0.1:3000 MQTT_URL=mqtt://127.0.0.1:1883 API_KEY=… npx tsx publish.ts
import { createHash } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import mqtt from 'mqtt';

const { DEVICE_PLATFORM_URL = 'http://127.0.0.1:3000', API_KEY = '' } = process.env;
const { MQTT_URL = `mqtt://${new URL(DEVICE_PLATFORM_URL).hostname}:1883` } = process.env;

interface State {
  /** Values that the device has not reported yet. */
  delta: { configs?: Record<string, { version: string; checksum: string }> };
}

interface Commands {
  result: { id: string; name: string }[];
}

async function send(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = { 'service.apikey': API_KEY, 'Content-Type': 'application/json' };
  const response = await fetch(DEVICE_PLATFORM_URL + path, { ...init, headers });
  if (!response.ok) throw new Error(`${path}: ${await response.text()}`);
  return response;
}

// the key says which device this is
const { id_device: device } = (await (await send('/self/')).json()) as { id_device: string };
const path = `/devices/${encodeURIComponent(device)}/`;

const { delta } = (await (await send(`${path}state/`)).json()) as State;
for (const [name, { version, checksum }] of Object.entries(delta.configs ?? {})) {
  const download = await send(`${path}deviceconfigs/${encodeURIComponent(name)}/${encodeURIComponent(version)}/`);
  const file = Buffer.from(await download.arrayBuffer());
  const isWhole = createHash('sha1').update(file).digest('hex') === checksum;
  if (isWhole) await writeFile(name, file);
  const report = { configs: { [name]: isWhole ? { version } : { version, error: 'was damaged on the way' } } };
  await send(`${path}state/reported/`, { method: 'PATCH', body: JSON.stringify(report) });
  console.log(`${name} ${version}: ${file.length} bytes`);
}

// with this request the commands are sent
const { result } = (await (await send(`${path}commands/?status=queued`)).json()) as Commands;
for (const { id, name } of result) {
  const answer = name === 'identify' ? { status: 'done', data: { runs: 'publish.ts' } } : { status: 'failed' };
  await send(`${path}commands/${id}/result/`, { method: 'POST', body: JSON.stringify(answer) });
  console.log(`${name}: ${answer.status}`);
}

// the key is the username; the password stays empty
const login = { username: API_KEY, password: '' };
const client = await mqtt.connectAsync(MQTT_URL, { ...login, clientId: device, protocolVersion: 4 });
// the identifier with %, /, +, # and a $ at its beginning percent-encoded; others stay as they are
const topic = `${device.replaceAll(/^\$|[%/+#]/g, encodeURIComponent)}/streams`;
const at = Math.floor(Date.now() / 1000);
// at QoS 1 the acknowledgement means that the stream is stored
await client.publishAsync(topic, JSON.stringify({ at, data: { temperature: 20.5 } }), { qos: 1 });
await client.endAsync();
console.log(`published to ${topic}`);
