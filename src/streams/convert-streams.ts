import mongoose from 'mongoose';
import { number_bits } from '../resources/stream-key.js';
import { bsonType, endOfKey, endOfValue, findElement, readNumber, readText, toBuffer } from '../serialize/bson.js';

const { BSON } = mongoose.mongo;

/** A stream of version 0.2.0 with what decides its place. */
interface Converted {
  account: string;
  device: string;
  at: number;
  /** Internal id, in the order of creation. */
  id: Buffer;
  n: bigint;
  /** The members that are kept, as BSON. */
  members: readonly Buffer[];
}

/** Members that are kept as they are. */
const keptMembers: ReadonlySet<string> = new Set(['parent', '_t', 'protocol', 'data', 'owner']);

/** Converts streams of version 0.2.0 to documents of the clustered collection, in its order. */
export function convertStreams(documents: readonly Uint8Array[]): Uint8Array[] {
  const converted = documents.map((bson) => convert(toBuffer(bson))).sort(compare);
  let previous: Converted | undefined;
  return converted.map((each) => {
    // streams of one message have the same time, and ids that differ in the end
    if (previous !== undefined && isSameTime(previous, each) && each.n <= previous.n) each.n = previous.n + 1n;
    previous = each;
    return serialize(each);
  });
}

function convert(source: Buffer): Converted {
  const members: Buffer[] = [];
  const values = new Map<string, { type: number; start: number; end: number }>();
  let i = 4;
  for (let type = source[i]; type; type = source[i]) {
    const keyEnd = endOfKey(source, i + 1);
    const end = endOfValue(source, type, keyEnd + 1);
    const key = source.toString('latin1', i + 1, keyEnd);
    if (keptMembers.has(key)) members.push(source.subarray(i, end));
    else values.set(key, { type, start: keyEnd + 1, end });
    i = end;
  }
  const numberOf = (key: string) => readNumber(source, values.get(key)) ?? 0;
  const textOf = (key: string) => readText(source, values.get(key)) ?? '';
  const _id = values.get('_id');
  // length and subtype precede the bytes of a binary value
  const id = _id?.type === bsonType.binary ? source.subarray(_id.start + 5, _id.end) : Buffer.alloc(16);
  const n = buildNumber(id, numberOf('created_at'));
  return { account: textOf('account'), device: textOf('device'), at: numberOf('at'), id, n, members };
}

/** Builds the number of a stream from its UUID of version 7: its time, but within the second of its receipt. */
function buildNumber(id: Buffer, created_at: number): bigint {
  const first = Math.floor(created_at) * 1000;
  const ms = Math.min(Math.max(id.readUIntBE(0, 6), first), first + 999);
  const fraction = (id.readUInt16BE(6) & 0xfff) * 256 + id.readUInt8(15);
  return (BigInt(ms) << BigInt(number_bits)) + BigInt(fraction);
}

function isSameTime(a: Converted, b: Converted): boolean {
  return a.at === b.at && a.device === b.device && a.account === b.account;
}

/** Orders as the collection does. */
function compare(a: Converted, b: Converted): number {
  return (
    compareText(a.account, b.account) || compareText(a.device, b.device) || a.at - b.at || Buffer.compare(a.id, b.id)
  );
}

/** Nearly: the database puts the documents in their places. */
function compareText(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}

function serialize({ account, device, at, n, members }: Converted): Uint8Array {
  const { Double, Long } = mongoose.mongo;
  const key = BSON.serialize({ _id: { account, device, at: new Double(at + 0), n: Long.fromBigInt(n) } });
  const length = members.reduce((sum, { length }) => sum + length, key.length);
  const document = Buffer.concat([key.subarray(0, -1), ...members, Buffer.alloc(1)], length);
  document.writeInt32LE(length);
  return document;
}

/** Returns the key of a converted stream. */
export function keyOf(document: Uint8Array): object {
  const source = toBuffer(document);
  const { start = 0, end = 0 } = findElement(source, 0, '_id') ?? {};
  return BSON.deserialize(source.subarray(start, end), { promoteValues: false });
}

/** Gives a converted stream the next number. */
export function updateNumber(document: Uint8Array): Uint8Array {
  const source = toBuffer(document);
  const at = findElement(source, 0, '_id')?.end ?? 0;
  // the number is the last member of the key, before its terminator
  source.writeBigInt64LE(source.readBigInt64LE(at - 9) + 1n, at - 9);
  return document;
}
