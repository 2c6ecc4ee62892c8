import { isUtf8 } from 'node:buffer';

/**
 * The bytes of a body or a message as JSON (contract 4).
 * @returns undefined for what the service does not take: no JSON, not UTF-8, nested deeper than 32
 */
export function parseJson(body: Buffer): unknown {
  if (!isUtf8(body) || tooDeep(body, 32)) return undefined;
  try {
    return JSON.parse(body.toString());
  } catch {
    return undefined;
  }
}

const [quote, backslash, bracket, brace, closeBracket, closeBrace] = Buffer.from('"\\[{]}') as unknown as number[];

/** Counted on the bytes: a parser that recurses would be the victim of what it is to find. */
function tooDeep(body: Buffer, limit: number): boolean {
  let depth = 0;
  let quoted = false;
  for (let at = 0; at < body.length; at++) {
    const byte = body[at];
    if (quoted) {
      if (byte === backslash) at++;
      else if (byte === quote) quoted = false;
    } else if (byte === quote) quoted = true;
    else if (byte === brace || byte === bracket) {
      if (++depth > limit) return true;
    } else if (byte === closeBrace || byte === closeBracket) depth--;
  }
  return false;
}
