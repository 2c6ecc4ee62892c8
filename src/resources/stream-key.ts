/**
 * Bits of the number of a stream below the milliseconds of its receipt: they order the streams of a millisecond
 * (docs/decisions/0024-streams-clustered-by-device.md).
 */
export const number_bits = 20;
const high_factor = 2 ** (32 - number_bits);

/** The smallest number of streams received at `moment` (epoch milliseconds) or later. */
export function buildMinNumber(moment: number): bigint {
  return BigInt(moment) << BigInt(number_bits);
}

/** The second of receipt that a number says (epoch seconds). */
export function readReceipt(n: bigint): number {
  return Math.floor(Number(n >> BigInt(number_bits)) / 1000);
}

/** Returns the time of receipt (epoch milliseconds) from a number stored at `at`, in little-endian order. */
export function readReceivedMs(source: Buffer, at: number): number {
  return source.readUInt32LE(at + 4) * high_factor + (source.readUInt32LE(at) >>> number_bits);
}

/** Bytes of what identifies a stream: its device's internal id, `at` as a double, and its number. */
export const identity_length = 32;
const [at_offset, number_offset] = [16, 24];
const identity_digits = 2 * identity_length;
const hexDigits = Buffer.from('0123456789abcdef');
const identifierFormat = /^([0-9a-f]{64})@/;
const at_sign = 0x40;

/**
 * Writes the `id_developer` of a stream (reference/streams.md#stream-identifiers). Bytes, because strings doubled the time
 * to serialize a stream. @param identity as stored: `at` and the number in little-endian order
 * @returns the number of bytes written to `target`
 */
export function writeStreamId(
  target: Uint8Array,
  identity: Uint8Array,
  account: Uint8Array,
  account_length: number,
): number {
  for (let i = 0, at = 0; i < identity_length; i++, at += 2) {
    // the last 16 bytes are two numbers, which are shown with their highest byte first
    const byte = identity[i < at_offset ? i : (i & ~7) + 7 - (i & 7)] as number;
    target[at] = hexDigits[byte >> 4] as number;
    target[at + 1] = hexDigits[byte & 15] as number;
  }
  let length = identity_digits;
  target[length++] = at_sign;
  for (let i = 0; i < account_length; i++) target[length++] = account[i] as number;
  return length;
}

/** What an identifier of a stream says. */
export interface StreamIdentity {
  /** Internal id of its device. */
  parent: Buffer;
  at: number;
  n: bigint;
}

/** Parses the identifier of a stream of `account`. @returns undefined for what `writeStreamId` does not write */
export function parseStreamId(id_developer: string, account: string): StreamIdentity | undefined {
  const [start = '', digits = ''] = identifierFormat.exec(id_developer) ?? [];
  if (start === '' || id_developer.slice(start.length) !== account) return undefined;
  const bytes = Buffer.from(digits, 'hex');
  const at = bytes.readDoubleBE(at_offset);
  // 0 has a second form, and NaN many
  if (!(at >= 0) || Object.is(at, -0)) return undefined;
  return { parent: bytes.subarray(0, at_offset), at, n: bytes.readBigInt64BE(number_offset) };
}
