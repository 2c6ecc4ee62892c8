import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import mongoose from 'mongoose';
import { createIdGenerator } from '../../src/db/ids.js';
import { openBareBroker } from '../support/bare-broker.js';

// The lower bound of MQTT: a bare broker that stores each message before it acknowledges it, without authentication, rights,
// validation or parent look-ups. It uses the same write concern.

const newId = createIdGenerator(() => performance.timeOrigin + performance.now());
const client = await mongoose.mongo.MongoClient.connect(process.env.MONGODB_URI ?? '', {
  writeConcern: { w: 'majority', journal: true },
  maxPoolSize: 50,
});
const streams = client.db().collection('streams');

const broker = openBareBroker(async ({ topic, payload }) => {
  const { data } = JSON.parse(payload.toString());
  const at = Math.floor(Date.now() / 1000);
  const stream = { _id: newId(), account: 'demo', device: topic, _t: 'str', protocol: 'mqtt', at, data };
  await streams.insertOne(stream as never);
});
const mqtt = createServer(broker.handle).listen(Number(process.env.MQTT_PORT), '127.0.0.1');
mqtt.once('listening', () => {
  const http = createHttpServer((_request, response) => response.end('ready')).listen(0, '127.0.0.1', () => {
    console.log(`listening on http://127.0.0.1:${(http.address() as AddressInfo).port}`);
  });
});
process.once('SIGTERM', () => process.exit(0));
