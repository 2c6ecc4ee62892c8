import { expect, it } from '@jest/globals';
import { parse } from 'csv-parse/sync';
import mongoose from 'mongoose';
import { Projection } from '../../src/serialize/projections.js';
import { RowsWriter } from '../../src/serialize/rows.js';
import { createRandom } from '../support/random.js';
import { wordsOf } from '../support/words.js';

const { BSON } = mongoose.mongo;
const projection = new Projection({ element: 'row', hidden: ['_id'] });
const context = undefined;

const texts = [
  ...wordsOf(`=1+1 + - @x ' '' , " "" ; ä😀 0 null`),
  '',
  '\r',
  '\n',
  '\r\n',
  ' ',
  '\t',
  '\ufeff',
  '\uffff',
  'x'.repeat(5000),
];
const numbers = [0, -1, 1.5, -3.7038, 1e21, 1e-7, 1760000000.25, 2 ** 53 - 1];

function randomText(random: () => number): string {
  return Array.from({ length: Math.floor(random() * 4) }, () => texts[Math.floor(random() * texts.length)]).join('');
}

function randomValue(random: () => number, depth = 0): unknown {
  const kind = Math.floor(random() * (depth < 3 ? 6 : 4));
  if (kind === 0) return randomText(random);
  if (kind === 1) return numbers[Math.floor(random() * numbers.length)];
  if (kind === 2) return random() < 0.5;
  if (kind === 3) return null;
  const members = Array.from({ length: Math.floor(random() * 4) }, () => randomValue(random, depth + 1));
  if (kind === 4) return members;
  return Object.fromEntries(members.map((member, index) => [`${index}${randomText(random).slice(0, 20)}`, member]));
}

const columns = ['id', 'text', 'data', 'networking.type', 'number', 'flag', 'properties.a.b', 'missing'];

/** A document in a random order of its keys. */
function randomDocument(random: () => number): Record<string, unknown> {
  const members: [string, unknown][] = [
    ['id', randomText(random)],
    ['text', randomText(random)],
    ['data', { a: randomValue(random), b: randomValue(random) }],
    ['networking', { carrier: randomText(random), type: randomText(random) }],
    ['number', numbers[Math.floor(random() * numbers.length)]],
    ['flag', random() < 0.5],
    ['properties', random() < 0.5 ? { a: { b: randomValue(random) }, c: 1 } : { 'a.b': randomValue(random) }],
    ['_id', 'hidden'],
    ['unknown', { a: randomText(random) }],
  ];
  return Object.fromEntries(members.filter(() => random() < 0.8).toSorted(() => random() - 0.5));
}

/** The cell of a value, as it is read back. */
function cellOf(value: unknown): string {
  if (value === undefined || value === null) return '';
  if (typeof value === 'object') return JSON.stringify(value);
  const text = String(value);
  return typeof value === 'string' && /^[=+\-@'\t\r]/.test(text) ? `'${text}` : text;
}

it('reads back as it was written, whatever the values and the order of the keys', () => {
  const random = createRandom(7);
  const documents = Array.from({ length: 500 }, () => randomDocument(random));
  const rows = new RowsWriter({ projection, format: 'csv', context, columns });
  const parts: Buffer[] = [];
  for (const document of documents) {
    rows.append(BSON.serialize(document));
    if (random() < 0.1) parts.push(rows.take());
  }
  const text = Buffer.concat([...parts, rows.end()]).toString();
  // biome-ignore lint/suspicious/noExplicitAny: documents have every shape
  const expected = documents.map(({ id, text, data, networking, number, flag, properties }: any) => [
    cellOf(id),
    cellOf(text),
    cellOf(data),
    cellOf(networking?.type),
    cellOf(number),
    cellOf(flag),
    cellOf(properties?.a?.b ?? properties?.['a.b']),
    '',
  ]);
  expect(parse(text, { record_delimiter: '\r\n' })).toEqual([columns, ...expected]);
});

it('quotes cells that a spreadsheet would split', () => {
  const rows = new RowsWriter({ projection, format: 'csv', context, columns: ['text'] });
  for (const text of ['a,b', 'a;b', 'a\tb', 'a"b', 'a\nb', '\tb', 'a b']) rows.append(BSON.serialize({ text }));
  expect(rows.end().toString().split('\r\n').slice(1, -1)).toEqual([
    '"a,b"',
    '"a;b"',
    '"a\tb"',
    '"a""b"',
    '"a\nb"',
    '"\'\tb"',
    'a b',
  ]);
});

it('writes nothing that begins with the sign of a formula but numbers', () => {
  const random = createRandom(11);
  const rows = new RowsWriter({ projection, format: 'csv', context, columns: ['text'] });
  for (let count = 0; count < 500; count++)
    rows.append(BSON.serialize({ text: `${'=+-@\t\r'[count % 6]}${randomText(random)}` }));
  const lines: string[][] = parse(rows.end().toString(), { from_line: 2, record_delimiter: '\r\n' });
  expect(lines.length).toBe(500);
  for (const [cell = ''] of lines) expect(cell).toMatch(/^'[=+\-@\t\r]/);
});
