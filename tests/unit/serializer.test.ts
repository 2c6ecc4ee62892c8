import { describe, expect, it } from '@jest/globals';
import { XMLValidator } from 'fast-xml-parser';
import mongoose from 'mongoose';
import { getDocument, getNumber, getString } from '../../src/serialize/bson.js';
import type { Format } from '../../src/serialize/format.js';
import { ListWriter } from '../../src/serialize/list.js';
import { buildJsonStatus, writeObject, writeStatus } from '../../src/serialize/object.js';
import { toPlainJson } from '../../src/serialize/plain-json.js';
import { toXml } from '../../src/serialize/plain-xml.js';
import { Projection } from '../../src/serialize/projections.js';
import { createRandom } from '../support/random.js';
import { wordsOf } from '../support/words.js';

const { BSON } = mongoose.mongo;

const PROLOG = '<?xml version="1.0" encoding="UTF-8"?>';
const plain = new Projection({ element: 'device' });

const KEYS = [
  ...[...wordsOf('name id_group é 日本 $where a.b __proto__ constructor _bsontype toBSON toJSON'), ''],
  ...['1abc', '10', 'a b', '😀', 'a😀', 'xmlfoo', 'XML', 'a:b', '\u0001', 'tab\there', 'line\nend\r', '<&">', '\uffff'],
];
const TEXTS = [
  ...['', 'plain', 'Zürich', '日本語', '😀', ']]>', 'a\r\nb\tc', '<a href="x">&amp;</a>', '"\\/\b\f', '\u0000\u001f'],
  ...['\ufffe\uffff\ufffd\uffee', '\u007f\u0085\u2028\u2029', '&#0;', 'x'.repeat(300), '{', '[', '\u0001'.repeat(99)],
];
const NUMBERS = [0, -0, 1, -1, 9, 10, 99, 100, 2147483647, -2147483648, 2147483648, 1.5, -0.1, 1e21, 1e-7, 5e-324];
const MORE_NUMBERS = [Number.MAX_VALUE, 9007199254740991, -9007199254740996, 1760000000.25, 123456789];

function pick<T>(random: () => number, from: T[]): T {
  return from[Math.floor(random() * from.length)] as T;
}

function randomText(random: () => number): string {
  if (random() < 0.7) return pick(random, TEXTS);
  const codes = Array.from({ length: Math.floor(random() * 12) }, () => Math.floor(random() * 0x10ffff));
  return String.fromCodePoint(...codes).toWellFormed();
}

function randomValue(random: () => number, depth: number): unknown {
  const kind = random();
  if (depth > 0 && kind < 0.25) return randomObject(random, depth - 1);
  if (depth > 0 && kind < 0.4) {
    return Array.from({ length: Math.floor(random() * 4) }, () => randomValue(random, depth - 1));
  }
  if (kind < 0.65) return randomText(random);
  if (kind < 0.8) return pick(random, [...NUMBERS, ...MORE_NUMBERS]);
  if (kind < 0.85) return (random() - 0.5) * 10 ** Math.floor(random() * 40 - 20);
  return pick(random, [true, false, null]);
}

function randomObject(random: () => number, depth: number): object {
  const members = Array.from({ length: Math.floor(random() * 7) }, () => {
    const key = random() < 0.9 ? pick(random, KEYS) : randomText(random).replaceAll('\0', '');
    return `${JSON.stringify(key)}:${JSON.stringify(randomValue(random, depth))}`;
  });
  return JSON.parse(`{${members.join()}}`);
}

/** Converts objects to Maps, so that the driver interprets no key. */
function maps(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(maps);
  if (typeof value !== 'object' || value === null) return value;
  return new Map(Object.entries(value).map(([key, inner]) => [key, maps(inner)]));
}

/** Encodes a document inside a larger buffer, as the driver returns it. */
function stored(value: object): Uint8Array {
  const bson = BSON.serialize(maps(value) as Map<string, unknown>);
  const message = new Uint8Array(bson.length + 12).fill(0xff);
  message.set(bson, 7);
  return message.subarray(7, 7 + bson.length);
}

function write(value: object, format: Format): string {
  return writeObject(stored(value), plain, format, undefined).toString();
}

/** Builds one XML element of a plain value, without the prolog. */
function element(name: string, value: unknown): string {
  return toXml(name, value).slice(PROLOG.length);
}

describe('writeObject', () => {
  it('writes the JSON that JSON.stringify writes', () => {
    const random = createRandom(1);
    for (let i = 0; i < 12_000; i++) {
      const value = randomObject(random, 4);
      const written = write(value, 'json');
      if (written !== JSON.stringify(value)) expect(written).toBe(JSON.stringify(value));
      if (i % 10 === 0) expect(JSON.parse(written)).toEqual(JSON.parse(JSON.stringify(value)));
    }
  });

  it('writes the XML that xmlbuilder2 writes', () => {
    const random = createRandom(2);
    for (let i = 0; i < 3_000; i++) {
      const value = randomObject(random, 4);
      const written = write(value, 'xml');
      const built = toXml('device', value);
      if (written !== built) expect(written).toBe(built);
      if (i % 10 === 0) expect(XMLValidator.validate(written)).toBe(true);
    }
  });

  it('keeps the stored order of keys that look like numbers', () => {
    const bson = BSON.serialize(
      new Map([
        ['b', 1],
        ['2', 2],
        ['1', 3],
      ]),
    );
    expect(writeObject(bson, plain, 'json', undefined).toString()).toBe('{"b":1,"2":2,"1":3}');
  });

  it('grows with a long text, and with one that is all escapes', () => {
    for (const text of ['x'.repeat(2_000_000), '\u0001'.repeat(300_000), '&\ufffe'.repeat(200_000)]) {
      expect(write({ text }, 'json') === JSON.stringify({ text })).toBe(true);
      expect(write({ text }, 'xml') === toXml('device', { text })).toBe(true);
    }
  });

  it('writes deep nesting', () => {
    const json = `${'{"a":['.repeat(90)}1${']}'.repeat(90)}`;
    expect(write(JSON.parse(json), 'json')).toBe(json);
  });

  it('writes types that JSON lacks as text', () => {
    const bson = BSON.serialize({
      id: new BSON.ObjectId('0123456789abcdef01234567'),
      uuid: new BSON.UUID('01234567-89ab-4def-8123-456789abcdef'),
      bytes: new BSON.Binary(Buffer.from([1, 2, 255])),
      at: new Date(1_760_000_000_123),
      before: new Date(-1),
      safe: BSON.Long.fromString('-9007199254740991'),
      small: BSON.Long.fromNumber(-5),
      long: BSON.Long.fromString('9223372036854775807'),
      exact: BSON.Decimal128.fromString('1.50'),
      pattern: /a"b/i,
      least: new BSON.MinKey(),
      code: new BSON.Code('x'),
      scoped: new BSON.Code('x', { y: 1 }),
      stamp: new BSON.Timestamp({ t: 1, i: 2 }),
      nan: Number.NaN,
      endless: Number.POSITIVE_INFINITY,
      last: 1,
    });
    expect(
      JSON.parse(writeObject(bson, plain, 'json', undefined).toString().replace('9223372036854775807', '"max"')),
    ).toEqual({
      id: '0123456789abcdef01234567',
      uuid: '01234567-89ab-4def-8123-456789abcdef',
      bytes: 'AQL/',
      at: '2025-10-09T08:53:20.123Z',
      before: '1969-12-31T23:59:59.999Z',
      safe: -9007199254740991,
      small: -5,
      long: 'max',
      exact: '{"$numberDecimal":"1.50"}',
      pattern: '{"$regularExpression":{"pattern":"a\\"b","options":"i"}}',
      least: '{"$minKey":1}',
      code: '{"$code":"x"}',
      scoped: '{"$code":"x","$scope":{"y":1}}',
      stamp: '{"$timestamp":{"t":1,"i":2}}',
      nan: null,
      endless: null,
      last: 1,
    });
  });

  it('rejects bytes that are not BSON', () => {
    expect(() => writeObject(Buffer.from([8, 0, 0, 0, 0x77, 0x61, 0, 0]), plain, 'json', undefined)).toThrow(
      'unknown BSON type',
    );
    expect(() => writeObject(Buffer.from([8, 0, 0, 0, 0x01, 0x61]), plain, 'json', undefined)).toThrow();
  });
});

describe('Projection', () => {
  const projection = new Projection<{ now: number; model?: Uint8Array }>({
    element: 'device',
    hidden: ['_id', 'account', ''],
    computed: ['due', 'location', 'properties', 'label', 'absent'],
    writeComputed(values, out, { now, model }) {
      out.member('status', (values.number('due') ?? 0) > now ? 'ok' : 'no_data');
      out.member('label', values.text('label') ?? null);
      out.member('lon', values.number('location', 'coordinates', '0') ?? null);
      out.member('lat', values.number('location', 'coordinates', '1') ?? null);
      out.member('known', values.raw('absent') !== undefined || values.number('due', 'x') !== undefined);
      out.merged('properties', model, values.raw('properties')?.bytes);
    },
  });
  const device = {
    _id: 1,
    account: { due: 7 },
    '': 0,
    name: 'a',
    due: 100,
    location: { type: 'Point', coordinates: [-3.5, 40] },
    label: 'é"',
    properties: { b: 2, __proto__x: 1, é: [{}] },
    accounts: 3,
    last: { _id: 1, due: 2 },
  };

  it('hides and computes top-level members only', () => {
    const json = writeObject(stored(device), projection, 'json', { now: 99 }).toString();
    expect(json).toBe(
      '{"name":"a","accounts":3,"last":{"_id":1,"due":2},"status":"ok","label":"é\\"","lon":-3.5,"lat":40,' +
        '"known":false,"properties":{"b":2,"__proto__x":1,"é":[{}]}}',
    );
    const xml = writeObject(stored(device), projection, 'xml', { now: 100 }).toString();
    expect(xml).toBe(toXml('device', { ...JSON.parse(json), status: 'no_data' }));
  });

  it('writes the members of a model that the device lacks before its own', () => {
    const model = stored({ é: 1, a: { x: 1 }, b: 'model', '': null });
    const json = writeObject(stored(device), projection, 'json', { now: 0, model }).toString();
    expect(json).toContain('"properties":{"a":{"x":1},"":null,"b":2,"__proto__x":1,"é":[{}]}}');
    const bare = writeObject(stored({ name: 'b' }), projection, 'json', { now: 0, model }).toString();
    expect(bare).toBe(
      '{"name":"b","status":"no_data","label":null,"lon":null,"lat":null,"known":false,' +
        '"properties":{"é":1,"a":{"x":1},"b":"model","":null}}',
    );
  });

  it('writes no merged member without either document, and nothing of the document before', () => {
    const list = new ListWriter({ projection, format: 'json', context: { now: 0 }, total_documents: 2 });
    list.append(stored(device));
    list.append(stored({}));
    list.append(stored({ properties: {} }));
    const { result } = JSON.parse(list.end().toString());
    expect(result.slice(1)).toEqual([
      { status: 'no_data', label: null, lon: null, lat: null, known: false },
      { status: 'no_data', label: null, lon: null, lat: null, known: false, properties: {} },
    ]);
  });
});

describe('writeStatus', () => {
  it('writes the fields of the object directly into details', () => {
    const status = { code: 2005, message: 'Device updated' };
    const write = (value: object, format: Format) =>
      writeStatus(status, stored(value), plain, format, undefined).toString();
    expect(buildJsonStatus(status, Buffer.from('{"name":"a"}')).toString()).toBe(write({ name: 'a' }, 'json'));
    expect(write({ name: 'a' }, 'json')).toBe('{"code":2005,"message":"Device updated","details":{"name":"a"}}');
    expect(write({ name: 'a' }, 'xml')).toBe(
      `${PROLOG}<response><code>2005</code><message>Device updated</message><details><name>a</name></details></response>`,
    );
    expect(write({}, 'xml')).toContain('<details/>');
  });
});

describe('ListWriter', () => {
  const metadata = { parameters: { max: 5, 'a b': null }, returned: 3, at_first: 1.5, absent: undefined };
  const options = { projection: new Projection({ element: 'project' }), context: undefined };

  it.each([0, 1, 3, 50])('writes the same list of %j documents however often it is taken', (length) => {
    const random = createRandom(length);
    const documents = Array.from({ length }, (_, i) => (i === 1 ? {} : randomObject(random, 3)));
    for (const given of [undefined, metadata]) {
      const whole = { total_documents: 1234, ...(given && { metadata: given }), result: documents };
      const items = documents.map((document) => element('project', document)).join('');
      const head = element('total_documents', 1234) + (given === undefined ? '' : element('metadata', given));
      const result = items === '' ? '<result/>' : `<result>${items}</result>`;
      const xml = `${PROLOG}<response>${head}${result}</response>`;
      for (const often of [1, 2, 1000]) {
        for (const format of ['json', 'xml'] as const) {
          const list = new ListWriter({ ...options, format, total_documents: 1234, metadata: given });
          const parts: Buffer[] = [];
          documents.forEach((document, i) => {
            list.append(stored(document));
            if (i % often === 0) parts.push(list.take());
          });
          expect(list.count).toBe(length);
          parts.push(list.end());
          expect(list.size).toBe(0);
          const written = Buffer.concat(parts).toString();
          expect(written).toBe(format === 'json' ? JSON.stringify(whole) : xml);
        }
      }
    }
  });

  it('writes plain values like stored documents, and names only the items of the list after the type', () => {
    const random = createRandom(5);
    const values = [{ result: [1] }, {}, ...Array.from({ length: 300 }, () => randomObject(random, 4))];
    for (const format of ['json', 'xml'] as const) {
      const list = new ListWriter({ ...options, format, total_documents: 2 });
      for (const value of values) list.appendValue(value);
      const written = list.end().toString();
      const items = values.map((value) => element('project', value)).join('');
      expect(written).toBe(
        format === 'json'
          ? JSON.stringify({ total_documents: 2, result: values })
          : `${PROLOG}<response><total_documents>2</total_documents><result>${items}</result></response>`,
      );
    }
  });

  it('does not change bytes that were taken', () => {
    const list = new ListWriter({ projection: plain, format: 'json', context: undefined, total_documents: 2 });
    list.append(stored({ a: 1 }));
    const taken = list.take();
    list.append(stored({ b: 2 }));
    expect(taken.toString()).toBe('{"total_documents":2,"result":[{"a":1}');
    expect(list.end().toString()).toBe(',{"b":2}]}');
  });
});

describe('toPlainJson', () => {
  it('returns stored values without interpreting their keys', () => {
    const json = '{"__proto__":{"a":1},"$ref":"x","$id":1,"_bsontype":"Long","toJSON":null,"":[{"$numberLong":"1"}]}';
    expect(JSON.stringify(toPlainJson(stored(JSON.parse(json))))).toBe(json);
    expect(toPlainJson(stored({}))).toEqual({});
  });
});

describe('getNumber, getString and getDocument', () => {
  const inner = { x: 1 };
  const bson = stored({ skipped: [{ id: 0 }], id: 'é', int: -7, double: 0.5, inner, nothing: null });

  it('return top-level values by key and type', () => {
    expect([getNumber(bson, 'int'), getNumber(bson, 'double'), getString(bson, 'id')]).toEqual([-7, 0.5, 'é']);
    expect(getNumber(BSON.serialize({ long: BSON.Long.fromNumber(2 ** 40) }), 'long')).toBe(2 ** 40);
    expect(BSON.deserialize(getDocument(bson, 'inner') ?? Buffer.alloc(0))).toEqual(inner);
  });

  it('return undefined for other keys and types', () => {
    for (const key of ['', 'i', 'idx', 'x', 'nothing', 'skipped']) {
      expect([getNumber(bson, key), getString(bson, key), getDocument(bson, key)]).toEqual([
        undefined,
        undefined,
        undefined,
      ]);
    }
    expect([getNumber(bson, 'id'), getString(bson, 'int'), getDocument(bson, 'id')]).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
  });
});
