import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import mongoose, { type mongo } from 'mongoose';
import type { ClusterKey } from '../../src/db/clustered.js';
import { createIdGenerator } from '../../src/db/ids.js';

// The lower bound that the service is compared with: node:http and the MongoDB driver without authentication, validation,
// serializer or parent look-ups. It answers the same paths with the same documents and uses the same write concern.

interface StoredObject extends mongo.Document {
  _id: mongo.UUID;
}

interface Reply {
  status: number;
  body: unknown;
}

const { MaxKey } = mongoose.mongo;

const account = 'demo';
const user = 'admin';
const earth_radius_m = 6_378_100;
const newId = createIdGenerator(() => performance.timeOrigin + performance.now());
const parent = newId();
const now = () => Math.floor(Date.now() / 1000);

const client = await mongoose.mongo.MongoClient.connect(process.env.MONGODB_URI ?? '', {
  writeConcern: { w: 'majority', journal: true },
  maxPoolSize: 50,
});
const devices = client.db().collection<StoredObject>('devices');
/** Those of `loadStreams` have keys like those of the service, those that are sent to the baseline have ids. */
const streams = client.db().collection<mongo.Document & { _id: mongo.UUID | ClusterKey }>('streams');

async function handle(request: IncomingMessage): Promise<Reply> {
  const [path = '', query] = (request.url ?? '').split('?');
  const [, plural, encodedId = '', children] = path.split('/');
  const id = decodeURIComponent(encodedId);
  if (request.method === 'POST') return children === 'streams' ? postStream(id, request) : postDevice(request);
  if (request.method === 'PUT') return putDevice(id, request);
  if (plural === 'groups') return query === undefined ? listGroup(id) : listPage(id, new URLSearchParams(query));
  if (children === 'series') return getSeries(id, new URLSearchParams(query));
  if (plural === 'devices') return query === undefined ? getDevice(id) : listCircle(new URLSearchParams(query));
  return { status: 200, body: {} };
}

async function getDevice(id_developer: string): Promise<Reply> {
  const body = await devices.findOne({ account, id_developer });
  return { status: body === null ? 404 : 200, body };
}

async function listGroup(id_group: string): Promise<Reply> {
  const result = await devices.find({ account, id_group }).sort({ id_developer: 1 }).toArray();
  return { status: 200, body: { total_documents: result.length, result } };
}

async function listPage(id_group: string, query: URLSearchParams): Promise<Reply> {
  const limit = Number(query.get('max'));
  const [total_documents, result] = await Promise.all([
    devices.countDocuments({ account, id_group }),
    devices.find({ account, id_group }).sort({ id_developer: 1 }).limit(limit).toArray(),
  ]);
  return { status: 200, body: { total_documents, result } };
}

async function listCircle(query: URLSearchParams): Promise<Reply> {
  const [lon, lat, distance_m] = ['geo_lon', 'geo_lat', 'geo_distance'].map((name) => Number(query.get(name)));
  const circle = { $centerSphere: [[lon, lat], (distance_m ?? 0) / earth_radius_m] };
  const result = await devices
    .find({ account, location: { $geoWithin: circle } })
    .sort({ id_developer: 1 })
    .toArray();
  return { status: 200, body: { total_documents: result.length, result } };
}

async function getSeries(device: string, query: URLSearchParams): Promise<Reply> {
  const every = Number(query.get('every'));
  const field = query.get('fields') ?? '';
  const value = `$data.${field}`;
  const result = await streams
    .aggregate([
      { $match: selectStreams(device, query) },
      {
        $group: {
          _id: { $subtract: ['$_id.at', { $mod: ['$_id.at', every] }] },
          count: { $sum: 1 },
          avg: { $avg: value },
          min: { $min: value },
          max: { $max: value },
        },
      },
      { $sort: { _id: 1 } },
    ])
    .toArray();
  const buckets = result.map(({ _id, count, ...aggregates }) => ({ at: _id, count, [field]: aggregates }));
  return { status: 200, body: { result: buckets } };
}

async function exportStreams(device: string, query: URLSearchParams, response: ServerResponse): Promise<void> {
  response.writeHead(200, { 'Content-Type': 'application/x-ndjson' });
  const cursor = streams.find(selectStreams(device, query), { sort: { _id: 1 }, batchSize: 1000 });
  for await (const stream of cursor) response.write(`${JSON.stringify(stream)}\n`);
  response.end();
}

function selectStreams(device: string, query: URLSearchParams) {
  const $gte: ClusterKey = { account, device, at: Number(query.get('at_from')) };
  const $lte: ClusterKey = { account, device, at: Number(query.get('at_to')), n: new MaxKey() };
  return { _id: { $gte, $lte } };
}

async function postDevice(request: IncomingMessage): Promise<Reply> {
  const { lon, lat, ...fields } = await readBody(request);
  const at = now();
  await devices.insertOne({
    _id: newId(),
    account,
    id_developer: `${fields.name}@${account}`,
    ...fields,
    stream_due_at: 0,
    status_due_at: 0,
    stream_safe_until: 0,
    status_safe_until: 0,
    stream_late_from: 0,
    status_late_from: 0,
    location: { type: 'Point', coordinates: [lon, lat] },
    owner: user,
    updater: user,
    created_at: at,
    updated_at: at,
    version: 0,
    parent,
  });
  return { status: 200, body: { code: 2001, message: 'Device created', details: {} } };
}

async function putDevice(id_developer: string, request: IncomingMessage): Promise<Reply> {
  const { version, ...fields } = await readBody(request);
  const details = await devices.findOneAndUpdate(
    { account, id_developer, version },
    { $set: { ...fields, updater: user, updated_at: now() }, $inc: { version: 1 } },
    { returnDocument: 'after' },
  );
  if (details === null) return { status: 409, body: { code: 4005, message: 'concurrency error', details: {} } };
  return { status: 200, body: { code: 2005, message: 'Device updated', details } };
}

async function postStream(device: string, request: IncomingMessage): Promise<Reply> {
  const { data } = await readBody(request);
  const at = now();
  await streams.insertOne({
    _id: newId(),
    account,
    parent,
    device,
    _t: 'str',
    protocol: 'http',
    at,
    data,
    owner: user,
    updater: user,
    created_at: at,
  });
  return { status: 200, body: { code: 2001, message: 'stream created', details: {} } };
}

function readBody(request: IncomingMessage): Promise<{ [field: string]: unknown }> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => resolve(JSON.parse(Buffer.concat(chunks).toString())));
    request.on('error', reject);
  });
}

const exportPath = /^\/devices\/([^/]+)\/streams\/\?(.*format=ndjson.*)$/;

const server = createServer((request, response) => {
  const [, device, query] = exportPath.exec(request.url ?? '') ?? [];
  if (device !== undefined) {
    void exportStreams(decodeURIComponent(device), new URLSearchParams(query), response);
    return;
  }
  const toReply = (error: unknown): Reply => ({ status: 500, body: String(error) });
  void handle(request)
    .catch(toReply)
    .then(({ status, body }) => {
      const text = JSON.stringify(body);
      response.writeHead(status, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) });
      response.end(text);
    });
});
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  console.log(`listening on http://127.0.0.1:${port}`);
});
process.once('SIGTERM', () => process.exit(0));
