import { isUtf8 } from 'node:buffer';

const max_depth = 32;

/**
 * Parses the bytes of a body or a message (reference/requests.md#bodies).
 * @returns undefined for what is not acceptable: not JSON, not UTF-8, nested deeper than 32
 */
export function parseJson(body: Buffer): unknown {
  if (!isUtf8(body) || isTooDeep(body)) return undefined;
  try {
    return JSON.parse(body.toString());
  } catch {
    return undefined;
  }
}

const [quote, backslash, bracket, brace, closeBracket, closeBrace] = Buffer.from('"\\[{]}') as unknown as number[];

/** Counts on the bytes, before a recursive parser sees them. */
function isTooDeep(body: Buffer): boolean {
  let depth = 0;
  let quoted = false;
  for (let at = 0; at < body.length; at++) {
    const byte = body[at];
    if (quoted) {
      if (byte === backslash) at++;
      else if (byte === quote) quoted = false;
    } else if (byte === quote) quoted = true;
    else if (byte === brace || byte === bracket) {
      if (++depth > max_depth) return true;
    } else if (byte === closeBrace || byte === closeBracket) depth--;
  }
  return false;
}
