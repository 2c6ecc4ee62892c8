// Creates a device with MQTT credentials, publishes a stream as that device, and reads it over HTTP.
//
//   DEVICE_PLATFORM_URL=http://127.0.0.1:3000 MQTT_URL=mqtt://127.0.0.1:1883 API_KEY=… npx tsx publish.ts
import { randomUUID } from 'node:crypto';
import mqtt from 'mqtt';

const { DEVICE_PLATFORM_URL = 'http://127.0.0.1:3000', API_KEY = '' } = process.env;
const { MQTT_URL = `mqtt://${new URL(DEVICE_PLATFORM_URL).hostname}:1883` } = process.env;

interface Answer {
  code?: number;
  total_documents?: number;
  result?: Record<string, unknown>[];
}

/** Sends a request and returns the body of the answer, which may be an error. */
async function send(method: string, path: string, body?: object): Promise<Answer> {
  const response = await fetch(DEVICE_PLATFORM_URL + path, {
    method,
    headers: { 'service.apikey': API_KEY, 'Content-Type': 'application/json' },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  return (await response.json()) as Answer;
}

/** Returns the identifier of the object with this name and parent, which is created if there is none. */
async function ensure(type: string, identity: Record<string, string>, fields: object = {}): Promise<string> {
  const find = async () => (await send('GET', `/${type}/?${new URLSearchParams(identity)}`)).result?.[0];
  const created = (await find()) === undefined && (await send('POST', `/${type}/`, { ...identity, ...fields }));
  const found = await find();
  if (found === undefined) throw new Error(`${type}: ${JSON.stringify(created)}`);
  return String(found.id_developer);
}

const project = await ensure('projects', { name: 'MQTT TypeScript' }, { id_customer: 'example' });
const service = await ensure('services', { name: 'MQTT TypeScript', id_project: project });
const group = await ensure('groups', { name: 'MQTT TypeScript', id_service: service });
const device = await ensure('devices', { name: 'Bench 2', id_group: group }, { type: 'thermometer' });

// a real device keeps its credentials; PUT replaces those of an earlier run
const credentials = { username: device, password: randomUUID() };
const credentialsPath = `/mqttdevices/${encodeURIComponent(device)}/credentials/`;
const replaced = await send('PUT', credentialsPath, credentials);
const answer = replaced.code === 4041 ? await send('POST', credentialsPath, credentials) : replaced;
if (answer.code !== 2001 && answer.code !== 2005) throw new Error(JSON.stringify(answer));

const client = await mqtt.connectAsync(MQTT_URL, { ...credentials, clientId: device, protocolVersion: 4 });
// the identifier with %, /, + and # percent-encoded; others may stay as they are
const topic = `${device.replaceAll(/[%/+#]/g, encodeURIComponent)}/streams`;
const at = Math.floor(Date.now() / 1000);
// at QoS 1 the acknowledgement means that the stream is stored
await client.publishAsync(topic, JSON.stringify({ at, data: { temperature: 20.5 } }), { qos: 1 });
await client.endAsync();
console.log(`published to ${topic}`);

const streams = await send('GET', `/devices/${encodeURIComponent(device)}/streams/?at=${at}`);
console.log(`stored ${streams.total_documents}`);
await send('DELETE', `/projects/${encodeURIComponent(project)}/`);
console.log('deleted');
