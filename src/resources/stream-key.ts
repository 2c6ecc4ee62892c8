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
const identity_length = 32;
const [at_offset, number_offset] = [16, 24];
const hexDigits = Buffer.from('0123456789abcdef');
const identifierFormat = /^([0-9a-f]{64})@/;
const at_sign = 0x40;

/** Positions in a stored stream of what its identifier says. */
export interface IdentitySource {
  /** The bytes of the internal id. */
  parent: number;
  /** Numbers in little-endian order. */
  at: number;
  n: number;
  /** Text, after its length. */
  account: number;
}

/**
 * Writes the `id_developer` of a stream (reference/streams.md#stream-identifiers). Bytes, because strings doubled the time
 * to serialize a stream. @returns the number of bytes written to `target`
 */
export function writeStreamId(target: Uint8Array, source: Buffer, { parent, at, n, account }: IdentitySource): number {
  let length = 0;
  for (let i = 0; i < identity_length; i++) {
    // the last 16 bytes are two numbers, which are shown with their highest byte first
    const position =
      i < at_offset ? parent + i : i < number_offset ? at + number_offset - 1 - i : n + identity_length - 1 - i;
    const byte = source[position] as number;
    target[length++] = hexDigits[byte >> 4] as number;
    target[length++] = hexDigits[byte & 15] as number;
  }
  target[length++] = at_sign;
  for (let i = account; source[i]; i++) target[length++] = source[i] as number;
  return length;
}

/** Parts of an identifier of a stream. */
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
