import mongoose from 'mongoose';
import { toXml } from '../../src/serialize/plain-xml.js';
import { openList, type Projection } from '../../src/serialize/printer.js';

// What the printer saves for 1,000 stored devices: against decoding them for JSON.stringify, and against building a
// tree for XML. Both ways take turns, and the medians are compared, so that a busy machine bends both alike.

const { BSON } = mongoose.mongo;
const ROUNDS = 41;
const HIDDEN = ['_id', 'account', 'parents'];

const view: Projection = { element: 'device', hidden: new Set(HIDDEN) };
const documents = Array.from({ length: 1000 }, (_, i) => Buffer.from(BSON.serialize(device(i))));
const bytes = documents.reduce((sum, document) => sum + document.length, 0);
console.log(`1000 documents of ${Math.round(bytes / 1000)} B`);

compare('JSON', print('json'), () =>
  Buffer.from(JSON.stringify({ total_documents: 1000, result: documents.map(decoded) })),
);
compare('XML', print('xml'), () =>
  Buffer.from(toXml('response', { total_documents: 1000, result: documents.map(decoded) }, 'device')),
);

function compare(name: string, ours: () => Buffer, theirs: () => Buffer): void {
  if (!ours().equals(theirs())) throw new Error(`${name}: the two ways differ`);
  const times: [number[], number[]] = [[], []];
  for (let round = 0; round < ROUNDS; round++) {
    times[0].push(timed(ours));
    times[1].push(timed(theirs));
  }
  const [printed, built] = [median(times[0]), median(times[1])];
  const ratio = (built / printed).toFixed(1);
  console.log(`${name}: printer ${printed.toFixed(1)} ms, decoded ${built.toFixed(1)} ms, ratio ${ratio}`);
}

function print(format: 'json' | 'xml'): () => Buffer {
  return () => {
    const list = openList(view, format, undefined);
    const parts: Buffer[] = [];
    for (const document of documents) {
      list.append(document);
      if (list.size > 256 * 1024) parts.push(list.take());
    }
    return Buffer.concat([list.header(1000), ...parts, list.footer()]);
  };
}

function decoded(document: Buffer): object {
  const value = BSON.deserialize(document);
  for (const key of HIDDEN) delete value[key];
  return value;
}

function timed(work: () => unknown): number {
  const start = performance.now();
  work();
  return performance.now() - start;
}

function median(times: number[]): number {
  return times.toSorted((a, b) => a - b)[times.length >> 1] ?? Number.NaN;
}

function device(i: number): object {
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
