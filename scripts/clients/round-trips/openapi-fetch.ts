// A round trip with openapi-fetch and the types that openapi-typescript has generated.
import assert from 'node:assert/strict';
import createClient from 'openapi-fetch';
import type { components, paths } from './schema.js';

const { DEVICE_PLATFORM_URL: baseUrl = '', API_KEY = '' } = process.env;
const client = createClient<paths, 'application/json'>({ baseUrl, headers: { 'service.apikey': API_KEY } });
const name = 'openapi-fetch';

/** Returns the data of a success. */
function dataOf<T>({ data, error }: { data?: T; error?: unknown }): T {
  if (data === undefined) throw new Error(JSON.stringify(error));
  return data;
}

/** Returns the identifier of the only object of a list. */
function onlyIdOf({
  total_documents,
  result: [object],
}: {
  total_documents: number;
  result: { id_developer: string }[];
}) {
  assert.equal(total_documents, 1);
  assert(object);
  return object.id_developer;
}

const query = { name };
assert.equal(dataOf(await client.POST('/projects/', { body: { name, id_customer: 'example' } })).code, 2001);
const id_project = onlyIdOf(dataOf(await client.GET('/projects/', { params: { query } })));
assert.equal(dataOf(await client.POST('/services/', { body: { name, id_project } })).code, 2001);
const id_service = onlyIdOf(dataOf(await client.GET('/services/', { params: { query } })));
assert.equal(dataOf(await client.POST('/groups/', { body: { name, id_service } })).code, 2001);
const id_group = onlyIdOf(dataOf(await client.GET('/groups/', { params: { query } })));
const body = { name: 'Bench 1/2', type: 'thermometer', id_group, properties: { rows: 3 }, lon: -3.7, lat: 40.4 };
assert.equal(dataOf(await client.POST('/devices/', { body })).code, 2001);
const id = onlyIdOf(dataOf(await client.GET('/devices/', { params: { query: { id_group, enabled: true } } })));
const params = { path: { device_id_developer: id } };

const streams = [
  { data: { temperature: 21.5 }, at: 1700000000.25 },
  { data: { battery: 97 }, _t: 'sta' as const },
];
assert.equal(
  dataOf(await client.POST('/devices/{device_id_developer}/streams/', { params, body: streams })).code,
  2001,
);
const listed = dataOf(
  await client.GET('/devices/{device_id_developer}/streams/', {
    params: { ...params, query: { at_to: 1700000001, sort: 'at', order: -1, max: 10 } },
  }),
);
assert.equal(listed.total_documents, 1);
assert.deepEqual(listed.result[0]?.data, { temperature: 21.5 });
assert.equal(listed.result[0]?.at, 1700000000.25);

const bytes = Uint8Array.of(0, 255, 104, 105);
const file = Buffer.from(bytes).toString('base64');
const config = { name: 'boot 1.cfg', version: '1.0', file };
const uploaded = dataOf(await client.POST('/devices/{device_id_developer}/deviceconfigs/', { params, body: config }));
assert.equal(uploaded.details.size, bytes.length);
const downloaded = await client.GET('/devices/{device_id_developer}/deviceconfigs/{file_name}/', {
  params: { path: { device_id_developer: id, file_name: config.name } },
  parseAs: 'arrayBuffer',
});
assert.deepEqual(new Uint8Array(dataOf(downloaded)), bytes);

const path = '/devices/{device_id_developer}/';
const device: components['schemas']['Device'] = dataOf(await client.GET(path, { params }));
assert.equal(device.status, 'ok');
assert.equal(device.lat, 40.4);
const { version } = device;
const updated = dataOf(await client.PUT(path, { params, body: { description: 'first', version } }));
assert.equal(updated.details.version, version + 1);
const { error } = await client.PUT(path, { params, body: { description: 'second', version } });
assert.equal(error?.code, 4005);
assert.deepEqual(error?.details, { version: version + 1 });

const project = { params: { path: { project_id_developer: id_project } } };
assert.equal(dataOf(await client.DELETE('/projects/{project_id_developer}/', project)).code, 2004);
const gone = await client.GET(path, { params });
assert.equal(gone.response.status, 404);
assert.equal(gone.error?.code, 4041);
