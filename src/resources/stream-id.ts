/** Bytes of an internal id, which is a UUID. */
export const id_length = 16;
const id_digits = 2 * id_length;
const hexDigits = Buffer.from('0123456789abcdef');
const identifierFormat = /^([0-9a-f]{32})([0-9a-f]{32})@/;
const at_sign = 0x40;

/**
 * Writes the `id_developer` of a stream (reference/streams.md#stream-identifiers): its internal id, the same bytes
 * inverted, and the account. Streams stored without one have one too, and no index is needed to find it. Bytes, because
 * strings doubled the time to serialize a stream. @returns the number of bytes written to `target`
 */
export function writeStreamId(target: Uint8Array, id: Uint8Array, account: Uint8Array, account_length: number): number {
  for (let i = 0, at = 0; i < id_length; i++, at += 2) {
    const byte = id[i] as number;
    const [high, low] = [byte >> 4, byte & 15];
    target[at] = hexDigits[high] as number;
    target[at + 1] = hexDigits[low] as number;
    target[id_digits + at] = hexDigits[15 - high] as number;
    target[id_digits + at + 1] = hexDigits[15 - low] as number;
  }
  let length = 2 * id_digits;
  target[length++] = at_sign;
  for (let i = 0; i < account_length; i++) target[length++] = account[i] as number;
  return length;
}

/** Computes the internal id of a stream of `account`. @returns undefined for what `writeStreamId` does not write */
export function parseStreamId(id_developer: string, account: string): Buffer | undefined {
  const [start = '', digits = '', inverted = ''] = identifierFormat.exec(id_developer) ?? [];
  if (start === '' || id_developer.slice(start.length) !== account) return undefined;
  const id = Buffer.from(digits, 'hex');
  return Buffer.from(inverted, 'hex').every((byte, at) => byte + (id[at] ?? 0) === 255) ? id : undefined;
}
