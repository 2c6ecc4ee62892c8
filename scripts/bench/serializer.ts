import mongoose from 'mongoose';
import type { Format } from '../../src/serialize/format.js';
import { ListWriter } from '../../src/serialize/list.js';
import { toXml } from '../../src/serialize/plain-xml.js';
import { Projection } from '../../src/serialize/projections.js';
import { median } from './measure.js';

// Compares two ways to serialize 1,000 stored devices: straight from BSON, and by decoding them for JSON.stringify or
// xmlbuilder2. Both are measured in turn, so that other load on the machine affects both; the medians are compared.

const { BSON } = mongoose.mongo;
const rounds = 41;
const hiddenFields = ['_id', 'account', 'parents'];

const projection = new Projection({ element: 'device', hidden: hiddenFields });
const documents = Array.from({ length: 1000 }, (_, i) => Buffer.from(BSON.serialize(createDevice(i))));
const bytes = documents.reduce((sum, document) => sum + document.length, 0);
console.log(`1000 documents of ${Math.round(bytes / 1000)} B`);

compare('JSON', createSerializer('json'), () =>
  Buffer.from(JSON.stringify({ total_documents: 1000, result: documents.map(decode) })),
);
compare('XML', createSerializer('xml'), () => Buffer.from(buildXml(documents.map(decode))));

function compare(name: string, serialize: () => Buffer, decodeAndSerialize: () => Buffer): void {
  if (!serialize().equals(decodeAndSerialize())) throw new Error(`${name}: the results differ`);
  const times: [number[], number[]] = [[], []];
  for (let round = 0; round < rounds; round++) {
    times[0].push(timeOf(serialize));
    times[1].push(timeOf(decodeAndSerialize));
  }
  const [direct_ms, decoded_ms] = [median(times[0]), median(times[1])];
  const ratio = (decoded_ms / direct_ms).toFixed(1);
  console.log(`${name}: from BSON ${direct_ms.toFixed(1)} ms, decoded ${decoded_ms.toFixed(1)} ms, ratio ${ratio}`);
}

function createSerializer(format: Format): () => Buffer {
  return () => {
    const list = new ListWriter({ projection, format, context: undefined, total_documents: 1000 });
    const parts: Buffer[] = [];
    for (const document of documents) {
      list.append(document);
      if (list.size > 256 * 1024) parts.push(list.take());
    }
    return Buffer.concat([...parts, list.end()]);
  };
}

/** Builds the list from one xmlbuilder2 tree per device. */
function buildXml(devices: object[]): string {
  const prolog = '<?xml version="1.0" encoding="UTF-8"?>';
  const items = devices.map((device) => toXml('device', device).slice(prolog.length)).join('');
  return `${prolog}<response><total_documents>1000</total_documents><result>${items}</result></response>`;
}

function decode(document: Buffer): object {
  const value = BSON.deserialize(document);
  for (const key of hiddenFields) delete value[key];
  return value;
}

function timeOf(work: () => unknown): number {
  const start = performance.now();
  work();
  return performance.now() - start;
}

function createDevice(i: number): object {
  const at = 1_760_000_000 + i;
  return {
    _id: new BSON.ObjectId(),
    account: 'demo',
    parents: ['plant@demo', 'cooling@demo', 'hall-3@demo'],
    id_developer: `thermometer-${i}@demo`,
    name: `thermometer-${i}`,
    type: 'thermometer',
    id_group: 'hall-3@demo',
    description: 'Température de la halle 3, mesurée toutes les dix minutes',
    sensor: 'temperature',
    properties: { floor: i % 7, room: `3.${i % 40}`, calibrated: true, offset: 0.25, tags: ['a', 'b'] },
    time_zone: 'Europe/Madrid',
    frequency_status: 1440,
    frequency_stream: 10,
    lon: -3.7 + i / 1999,
    lat: 40.4 + i / 1777,
    networking: { type: 'wifi', conn_address: `10.0.${i >> 8}.${i & 255}` },
    enabled: true,
    owner: 'alice',
    updater: 'bob',
    created_at: at,
    updated_at: at + 86_400,
    version: 3,
  };
}
