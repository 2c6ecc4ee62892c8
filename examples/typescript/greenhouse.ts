// Creates a device, sends streams, lists them, updates the device against a conflict, and deletes everything again.
//
//   DEVICE_PLATFORM_URL=http://127.0.0.1:3000 API_KEY=… npx tsx examples/typescript/greenhouse.ts
type Json = Record<string, unknown>;
interface StoredObject extends Json {
  id_developer: string;
  version: number;
}
interface List {
  total_documents: number;
  result: StoredObject[];
}

const { DEVICE_PLATFORM_URL = 'http://127.0.0.1:3000', API_KEY = '' } = process.env;
const conflict = 4005;

/** An answer other than success; `details` names the wrong fields. */
class PlatformError extends Error {
  constructor(
    readonly code: number,
    readonly details: Json,
    message: string,
  ) {
    super(message);
  }
}

/** Sends a request and returns the body of the answer. @throws PlatformError */
async function send<T>(method: string, path: string, body?: unknown): Promise<T> {
  const response = await fetch(DEVICE_PLATFORM_URL + path, {
    method,
    headers: { 'service.apikey': API_KEY, 'Content-Type': 'application/json' },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  const answer = (await response.json()) as Json;
  if (response.ok) return answer as T;
  const { code, message, details } = answer;
  throw new PlatformError(Number(code), details as Json, `${code} ${message} ${JSON.stringify(details)}`);
}

const pathOf = (type: string, id: string) => `/${type}/${encodeURIComponent(id)}/`;

/** Returns the identifier of the object with this name and parent, which is created if there is none. */
async function ensure(type: string, identity: Record<string, string>, fields: Json = {}): Promise<string> {
  const find = async () => (await send<List>('GET', `/${type}/?${new URLSearchParams(identity)}`)).result[0];
  const found = await find();
  if (found !== undefined) return found.id_developer;
  await send('POST', `/${type}/`, { ...identity, ...fields });
  const created = await find();
  if (created === undefined) throw new Error(`${type}: another program has deleted the new object`);
  return created.id_developer;
}

/** Applies `change` to the object as it is now; if another program was faster, to what that program has stored. */
async function update(path: string, current: StoredObject, change: (stored: StoredObject) => Json) {
  for (let latest = current; ; latest = await send<StoredObject>('GET', path)) {
    try {
      const body = { ...change(latest), version: latest.version };
      return (await send<{ details: StoredObject }>('PUT', path, body)).details;
    } catch (error) {
      if (!(error instanceof PlatformError) || error.code !== conflict) throw error;
      console.log(`conflict: version ${latest.version} is out of date`);
    }
  }
}

const project = await ensure('projects', { name: 'Greenhouse TypeScript' }, { id_customer: 'example' });
const service = await ensure('services', { name: 'Climate TypeScript', id_project: project });
const group = await ensure('groups', { name: 'North TypeScript', id_service: service });
const device = await ensure('devices', { name: 'Bench 1', id_group: group }, { type: 'thermometer' });
const path = pathOf('devices', device);
console.log(`device ${device}`);

const now = Math.floor(Date.now() / 1000);
await send('POST', `${path}streams/`, [
  { at: now - 60, data: { temperature: 21.5 } },
  { at: now, data: { temperature: 21.75 } },
]);
await send('POST', `${path}streams/`, { _t: 'sta', data: { battery: 97 } });

const streams = await send<List>('GET', `${path}streams/?_t=str&sort=at&order=-1&max=10`);
for (const { at, data } of streams.result) console.log(`stream ${at} ${JSON.stringify(data)}`);

const stale = await send<StoredObject>('GET', path);
await send('PUT', path, { description: 'moved by somebody else', version: stale.version });
const updated = await update(path, stale, () => ({ firmware: '1.1.0' }));
console.log(`version ${updated.version}, firmware ${updated.firmware}, ${updated.description}`);

await send('DELETE', pathOf('projects', project));
console.log('deleted');
