import { createServer, type IncomingMessage } from 'node:http';
import mongoose, { type mongo } from 'mongoose';
import { createIdGenerator } from '../../src/db/ids.js';

// What is left when everything that makes the service a service is taken away: no keys, no checks, no printer, no
// look at parents. The same documents in the same collections, acknowledged the same way; answers to the same paths.

interface Stored extends mongo.Document {
  _id: mongo.UUID;
}

interface Answer {
  status: number;
  body: unknown;
}

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
const devices = client.db().collection<Stored>('devices');
const streams = client.db().collection<Stored>('streams');

async function answer(request: IncomingMessage): Promise<Answer> {
  const [path = '', query] = (request.url ?? '').split('?');
  const [, plural, given = '', children] = path.split('/');
  const id = decodeURIComponent(given);
  if (request.method === 'POST') return children === 'streams' ? postStream(id, request) : postDevice(request);
  if (request.method === 'PUT') return putDevice(id, request);
  if (plural === 'groups') return query === undefined ? listOf(id) : pageOf(id, new URLSearchParams(query));
  if (plural === 'devices') return query === undefined ? getDevice(id) : around(new URLSearchParams(query));
  return { status: 200, body: {} };
}

async function getDevice(id_developer: string): Promise<Answer> {
  const body = await devices.findOne({ account, id_developer });
  return { status: body === null ? 404 : 200, body };
}

async function listOf(id_group: string): Promise<Answer> {
  const result = await devices.find({ account, id_group }).sort({ id_developer: 1 }).toArray();
  return { status: 200, body: { total_documents: result.length, result } };
}

async function pageOf(id_group: string, query: URLSearchParams): Promise<Answer> {
  const limit = Number(query.get('max'));
  const [total_documents, result] = await Promise.all([
    devices.countDocuments({ account, id_group }),
    devices.find({ account, id_group }).sort({ id_developer: 1 }).limit(limit).toArray(),
  ]);
  return { status: 200, body: { total_documents, result } };
}

async function around(query: URLSearchParams): Promise<Answer> {
  const [lon, lat, distance_m] = ['geo_lon', 'geo_lat', 'geo_distance'].map((name) => Number(query.get(name)));
  const circle = { $centerSphere: [[lon, lat], (distance_m ?? 0) / earth_radius_m] };
  const result = await devices
    .find({ account, location: { $geoWithin: circle } })
    .sort({ id_developer: 1 })
    .toArray();
  return { status: 200, body: { total_documents: result.length, result } };
}

async function postDevice(request: IncomingMessage): Promise<Answer> {
  const { lon, lat, ...fields } = await bodyOf(request);
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

async function putDevice(id_developer: string, request: IncomingMessage): Promise<Answer> {
  const { version, ...fields } = await bodyOf(request);
  const details = await devices.findOneAndUpdate(
    { account, id_developer, version },
    { $set: { ...fields, updater: user, updated_at: now() }, $inc: { version: 1 } },
    { returnDocument: 'after' },
  );
  if (details === null) return { status: 409, body: { code: 4005, message: 'concurrency error', details: {} } };
  return { status: 200, body: { code: 2005, message: 'Device updated', details } };
}

async function postStream(device: string, request: IncomingMessage): Promise<Answer> {
  const { data } = await bodyOf(request);
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

function bodyOf(request: IncomingMessage): Promise<{ [field: string]: unknown }> {
  return new Promise((done, failed) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => done(JSON.parse(Buffer.concat(chunks).toString())));
    request.on('error', failed);
  });
}

const server = createServer((request, response) => {
  const failed = (error: unknown): Answer => ({ status: 500, body: String(error) });
  void answer(request)
    .catch(failed)
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
