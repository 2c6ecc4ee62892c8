import { describe, expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import { OpaqueJson, sizeOfOpaque } from '../../src/db/opaque-json.js';
import { toPlainJson } from '../../src/serialize/plain-json.js';
import { wordsOf } from '../support/words.js';

const { BSON } = mongoose.mongo;

const keys = [...wordsOf('__proto__ $where a.b _bsontype toBSON constructor $ref $id length 1 é'), ''];
const values = ['""', '"x"', '1', '1.5', '-2147483649', 'true', 'null', '[]', '{}', '{"_bsontype":"ObjectId","id":1}'];

/** Objects with every key and every value, nested in one another and in arrays. */
function sample(depth: number): string {
  const members = keys.map((key, i) => {
    const leaf = values[(i + depth) % values.length];
    return `${JSON.stringify(key)}:${depth > 0 && i % 4 === 0 ? `[${leaf},${sample(depth - 1)}]` : leaf}`;
  });
  return `{${members.join()}}`;
}

describe('OpaqueJson', () => {
  it('is stored by the driver as given, whatever its keys are', () => {
    const data: unknown = JSON.parse(sample(3));
    const bson = BSON.serialize({ data: new OpaqueJson(data) }, { checkKeys: false });
    expect(JSON.stringify(toPlainJson(bson))).toBe(JSON.stringify({ data }));
  });

  it('is as large for the driver as what the driver writes', () => {
    const document = { data: new OpaqueJson(JSON.parse(sample(3))) };
    expect(BSON.calculateObjectSize(document)).toBe(BSON.serialize(document).length);
  });

  it('stores integers of 32 bits as such, other numbers as doubles', () => {
    const bson = BSON.serialize({ data: new OpaqueJson({ a: [1, -2147483648, 2147483648, 0.5, 1e300] }) });
    const { data } = BSON.deserialize(bson, { promoteValues: false });
    expect(data.a.map((value: { _bsontype: string }) => value._bsontype)).toEqual([
      'Int32',
      'Int32',
      'Double',
      'Double',
      'Double',
    ]);
  });

  it('does not follow later changes of the value, and returns a copy', () => {
    const value = { a: 1 };
    const opaque = new OpaqueJson(value);
    value.a = 2;
    expect(opaque.parse()).toEqual({ a: 1 });
  });

  it('counts its text towards the size of a document', () => {
    expect(sizeOfOpaque({ name: 'x', data: new OpaqueJson({ a: 1 }), properties: new OpaqueJson([]) })).toBe(9);
  });
});
