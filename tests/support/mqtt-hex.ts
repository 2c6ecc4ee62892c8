/** The bytes of hexadecimal text; spaces and `|` only part it. */
export const bytesOf = (hex: string): Buffer => Buffer.from(hex.replaceAll(/\s|\|/g, ''), 'hex');

/** A text without its length, as hexadecimal bytes. */
export const hexOf = (text: string): string => Buffer.from(text).toString('hex');

/** A UTF-8 encoded string of MQTT, as hexadecimal bytes. */
export function string(text: string): string {
  return Buffer.byteLength(text).toString(16).padStart(4, '0') + hexOf(text);
}

/** A packet with its length; `parts` are hexadecimal. Without `first`, a part of a packet with its length. */
export function packet(first: string, ...parts: string[]): string {
  const body = bytesOf(parts.join(''));
  const length = [];
  for (let rest = body.length; length.length === 0 || rest > 0; rest >>= 7)
    length.push((rest & 127) | (rest > 127 ? 128 : 0));
  return first + Buffer.from(length).toString('hex') + body.toString('hex');
}
