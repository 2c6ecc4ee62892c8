import { stringify } from 'csv-stringify/sync';
import mongoose from 'mongoose';
import { stream } from '../../src/resources/index.js';
import { columnsOf } from '../../src/schema/columns.js';
import { projectionOf } from '../../src/serialize/projections.js';
import { RowsWriter } from '../../src/serialize/rows.js';
import { median } from './measure.js';

// Compares two ways to write 1,000 stored streams as CSV: straight from BSON, and by decoding them for csv-stringify. Both
// are measured in turn, so that other load on the machine affects both; the medians are compared.

const { BSON, UUID } = mongoose.mongo;
const rounds = 41;
const { names: columns } = columnsOf(stream);
const projection = projectionOf(stream, 'list');
const documents = Array.from({ length: 1000 }, (_, i) => Buffer.from(BSON.serialize(createStream(i))));

const [direct, decoded] = [writeRows, stringifyRows].map((write) => {
  write();
  return median(Array.from({ length: rounds }, () => timeOf(write)));
}) as [number, number];
console.log(`from BSON ${direct.toFixed(1)} ms, csv-stringify ${decoded.toFixed(1)} ms for 1,000 rows`);

function writeRows(): Buffer {
  const rows = new RowsWriter({ projection, format: 'csv', context: { now: 0, inherited: new Map() }, columns });
  for (const document of documents) rows.append(document);
  return rows.end();
}

function stringifyRows(): Buffer {
  const rows = documents.map((document) => {
    const { _id, account, ...shown } = BSON.deserialize(document, { promoteValues: true });
    const inverted = Buffer.from(Array.from(_id.buffer as Uint8Array, (byte) => 255 - byte)).toString('hex');
    return { ...shown, id_developer: `${_id.toHexString().replaceAll('-', '')}${inverted}@${account}` };
  });
  return Buffer.from(
    stringify(rows, {
      columns: [...columns],
      header: true,
      record_delimiter: 'windows',
      escape_formulas: true,
      cast: { object: (value) => JSON.stringify(value) },
    }),
  );
}

function createStream(i: number): object {
  return {
    _id: new UUID(),
    account: 'demo',
    device: 'Pump@demo',
    _t: 'str',
    protocol: 'http',
    at: 1700000000 + i,
    data: { temperature: 20 + i / 100, wind: i % 30, battery: 3.7, state: 'ok' },
    owner: 'admin',
    updater: 'admin',
    created_at: 1700000000 + i,
  };
}

function timeOf(write: () => Buffer): number {
  const begun = performance.now();
  write();
  return performance.now() - begun;
}
