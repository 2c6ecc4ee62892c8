import { describe, expect, it } from '@jest/globals';
import { XMLValidator } from 'fast-xml-parser';
import mongoose from 'mongoose';
import { getDocument, getNumber, getString } from '../../src/serialize/bson.js';
import { toXml } from '../../src/serialize/plain-xml.js';
import { type Format, openList, type Projection, printObject, printStatus } from '../../src/serialize/printer.js';

const { BSON } = mongoose.mongo;

const PROLOG = '<?xml version="1.0" encoding="UTF-8"?>';
const plain: Projection = { element: 'device', hidden: new Set() };

const KEYS = [
  ...[
    'name',
    'id_group',
    'é',
    '日本',
    '$where',
    'a.b',
    '',
    '__proto__',
    'constructor',
    '_bsontype',
    'toBSON',
    'toJSON',
  ],
  ...['1abc', '10', 'a b', '😀', 'a😀', 'xmlfoo', 'XML', 'a:b', '\u0001', 'tab\there', 'line\nend\r', '<&">', '\uffff'],
];
const TEXTS = [
  ...['', 'plain', 'Zürich', '日本語', '😀', ']]>', 'a\r\nb\tc', '<a href="x">&amp;</a>', '"\\/\b\f', '\u0000\u001f'],
  ...['\ufffe\uffff\ufffd\uffee', '\u007f\u0085\u2028\u2029', '&#0;', 'x'.repeat(300), '{', '[', '\u0001'.repeat(99)],
];
const NUMBERS = [0, -0, 1, -1, 9, 10, 99, 100, 2147483647, -2147483648, 2147483648, 1.5, -0.1, 1e21, 1e-7, 5e-324];
const MORE_NUMBERS = [Number.MAX_VALUE, 9007199254740991, -9007199254740996, 1760000000.25, 123456789];

/** Numbers 0..1 that are the same in every run. */
function sequence(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) | 0;
    return (state >>> 0) / 2 ** 32;
  };
}

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

/** Maps, so that the driver interprets no key. */
function maps(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(maps);
  if (typeof value !== 'object' || value === null) return value;
  return new Map(Object.entries(value).map(([key, inner]) => [key, maps(inner)]));
}

/** As the driver hands documents over: somewhere in a larger buffer. */
function stored(value: object): Uint8Array {
  const bson = BSON.serialize(maps(value) as Map<string, unknown>);
  const message = new Uint8Array(bson.length + 12).fill(0xff);
  message.set(bson, 7);
  return message.subarray(7, 7 + bson.length);
}

function print(value: object, format: Format, view = plain): string {
  return printObject(stored(value), view, format, undefined).toString();
}

describe('printObject', () => {
  it('prints the JSON that JSON.stringify prints', () => {
    const random = sequence(1);
    for (let i = 0; i < 12_000; i++) {
      const value = randomObject(random, 4);
      const printed = print(value, 'json');
      if (printed !== JSON.stringify(value)) expect(printed).toBe(JSON.stringify(value));
      if (i % 10 === 0) expect(JSON.parse(printed)).toEqual(JSON.parse(JSON.stringify(value)));
    }
  });

  it('prints the XML that the tree writer prints', () => {
    const random = sequence(2);
    for (let i = 0; i < 3_000; i++) {
      const value = randomObject(random, 4);
      const printed = print(value, 'xml');
      const built = toXml('device', value);
      if (printed !== built) expect(printed).toBe(built);
      if (i % 10 === 0) expect(XMLValidator.validate(printed)).toBe(true);
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
    expect(printObject(bson, plain, 'json', undefined).toString()).toBe('{"b":1,"2":2,"1":3}');
  });

  it('grows with a long text, and with one that is all escapes', () => {
    for (const text of ['x'.repeat(2_000_000), '\u0001'.repeat(300_000), '&\ufffe'.repeat(200_000)]) {
      expect(print({ text }, 'json') === JSON.stringify({ text })).toBe(true);
      expect(print({ text }, 'xml') === toXml('device', { text })).toBe(true);
    }
  });

  it('takes deep nesting', () => {
    const json = `${'{"a":['.repeat(90)}1${']}'.repeat(90)}`;
    expect(print(JSON.parse(json), 'json')).toBe(json);
  });

  it('prints types that JSON does not know', () => {
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
      JSON.parse(printObject(bson, plain, 'json', undefined).toString().replace('9223372036854775807', '"max"')),
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

  it('refuses bytes that are no BSON', () => {
    expect(() => printObject(Buffer.from([8, 0, 0, 0, 0x77, 0x61, 0, 0]), plain, 'json', undefined)).toThrow(
      'no BSON type',
    );
    expect(() => printObject(Buffer.from([8, 0, 0, 0, 0x01, 0x61]), plain, 'json', undefined)).toThrow();
  });
});

describe('a view', () => {
  const view: Projection<{ now: number; model?: Uint8Array }> = {
    element: 'device',
    hidden: new Set(['_id', 'account', '']),
    computed: new Set(['due', 'location', 'properties', 'label', 'absent']),
    printComputed(values, out, { now, model }) {
      out.member('status', (values.number('due') ?? 0) > now ? 'ok' : 'no_data');
      out.member('label', values.text('label') ?? null);
      out.member('lon', values.number('location', 'coordinates', '0') ?? null);
      out.member('lat', values.number('location', 'coordinates', '1') ?? null);
      out.member('known', values.raw('absent') !== undefined || values.number('due', 'x') !== undefined);
      out.merged('properties', model, values.raw('properties')?.bytes);
    },
  };
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

  it('hides and computes at the top only', () => {
    const json = printObject(stored(device), view, 'json', { now: 99 }).toString();
    expect(json).toBe(
      '{"name":"a","accounts":3,"last":{"_id":1,"due":2},"status":"ok","label":"é\\"","lon":-3.5,"lat":40,' +
        '"known":false,"properties":{"b":2,"__proto__x":1,"é":[{}]}}',
    );
    const xml = printObject(stored(device), view, 'xml', { now: 100 }).toString();
    expect(xml).toBe(toXml('device', { ...JSON.parse(json), status: 'no_data' }));
  });

  it('puts a model’s members before the own ones that do not replace them', () => {
    const model = stored({ é: 1, a: { x: 1 }, b: 'model', '': null });
    const json = printObject(stored(device), view, 'json', { now: 0, model }).toString();
    expect(json).toContain('"properties":{"a":{"x":1},"":null,"b":2,"__proto__x":1,"é":[{}]}}');
    const bare = printObject(stored({ name: 'b' }), view, 'json', { now: 0, model }).toString();
    expect(bare).toBe(
      '{"name":"b","status":"no_data","label":null,"lon":null,"lat":null,"known":false,' +
        '"properties":{"é":1,"a":{"x":1},"b":"model","":null}}',
    );
  });

  it('prints no merged member where there is nothing to merge, and forgets the document before', () => {
    const list = openList(view, 'json', { now: 0 });
    list.append(stored(device));
    list.append(stored({}));
    list.append(stored({ properties: {} }));
    const { result } = JSON.parse(Buffer.concat([list.header(2), list.footer()]).toString());
    expect(result.slice(1)).toEqual([
      { status: 'no_data', label: null, lon: null, lat: null, known: false },
      { status: 'no_data', label: null, lon: null, lat: null, known: false, properties: {} },
    ]);
  });
});

describe('printStatus', () => {
  it('puts the object’s fields directly into details', () => {
    const status = { code: 2005, message: 'Device updated' };
    const print = (value: object, format: Format) =>
      printStatus(status, stored(value), plain, format, undefined).toString();
    expect(print({ name: 'a' }, 'json')).toBe('{"code":2005,"message":"Device updated","details":{"name":"a"}}');
    expect(print({ name: 'a' }, 'xml')).toBe(
      `${PROLOG}<response><code>2005</code><message>Device updated</message><details><name>a</name></details></response>`,
    );
    expect(print({}, 'xml')).toContain('<details/>');
  });
});

describe('openList', () => {
  const metadata = { parameters: { max: 5, 'a b': null }, returned: 3, at_first: 1.5, absent: undefined };

  it.each([0, 1, 3, 50])('prints the same whole however %j documents are taken', (length) => {
    const random = sequence(length);
    const documents = Array.from({ length }, (_, i) => (i === 1 ? {} : randomObject(random, 3)));
    for (const given of [undefined, metadata]) {
      const whole = { total_documents: 1234, ...(given && { metadata: given }), result: documents };
      for (const often of [1, 2, 1000]) {
        for (const format of ['json', 'xml'] as const) {
          const list = openList({ element: 'project', hidden: new Set() }, format, undefined);
          const parts: Buffer[] = [];
          documents.forEach((document, i) => {
            list.append(stored(document));
            if (i % often === 0) parts.push(list.take());
          });
          expect(list.count).toBe(length);
          const footer = list.footer();
          expect(list.size).toBe(0);
          const printed = Buffer.concat([list.header(1234, given), ...parts, footer]).toString();
          expect(printed).toBe(format === 'json' ? JSON.stringify(whole) : toXml('response', whole, 'project'));
        }
      }
    }
  });

  it('leaves what was taken alone', () => {
    const list = openList(plain, 'json', undefined);
    list.append(stored({ a: 1 }));
    const taken = list.take();
    list.append(stored({ b: 2 }));
    expect(taken.toString()).toBe(',"result":[{"a":1}');
    expect(list.footer().toString()).toBe(',{"b":2}]}');
  });
});

describe('a look into a document', () => {
  const inner = { x: 1 };
  const bson = stored({ skipped: [{ id: 0 }], id: 'é', int: -7, double: 0.5, inner, nothing: null });

  it('finds values at the top by key and type', () => {
    expect([getNumber(bson, 'int'), getNumber(bson, 'double'), getString(bson, 'id')]).toEqual([-7, 0.5, 'é']);
    expect(getNumber(BSON.serialize({ long: BSON.Long.fromNumber(2 ** 40) }), 'long')).toBe(2 ** 40);
    expect(BSON.deserialize(getDocument(bson, 'inner') ?? Buffer.alloc(0))).toEqual(inner);
  });

  it('finds nothing where there is nothing of the kind', () => {
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
