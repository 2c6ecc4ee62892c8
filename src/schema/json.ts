import { isUtf8 } from 'node:buffer';

/** Levels of nesting in one body, the outermost object included. */
export const max_depth = 32;

/** JSON values in one body: objects, arrays, texts, numbers, booleans and nulls, the outermost included. */
export const max_body_values = 50_000;
/** The message of fault `tooManyValues`. */
export const tooManyValues = `must not have more than ${max_body_values} JSON values`;
/** JSON values in one free-form object. */
export const max_object_values = 5_000;

/** JSON with too many values is not parsed; `isObject` is then derived from its first byte. */
export type ParsedJson =
  | { value: unknown; fault?: never; reason?: never }
  | { fault: 'malformed' | 'tooManyValues'; isObject: boolean; reason?: string; value?: never };

/** The reason of text that is none. */
export const notUtf8 = 'must be UTF-8';

const describeMalformed = (reason: string): ParsedJson => ({ fault: 'malformed', isObject: false, reason });

/** Some programs write it in front of UTF-8. */
const byteOrderMark = Buffer.from('\ufeff');

/** Takes off a byte order mark. */
export function removeByteOrderMark(text: Buffer): Buffer {
  return text.subarray(0, byteOrderMark.length).equals(byteOrderMark) ? text.subarray(byteOrderMark.length) : text;
}

/**
 * Parses the bytes of a body or a message (reference/requests.md#bodies). Malformed is what is not JSON, not UTF-8, or
 * nested deeper than 32.
 */
export function parseJson(bytes: Buffer, max_values = max_body_values): ParsedJson {
  if (!isUtf8(bytes)) return describeMalformed(notUtf8);
  const body = removeByteOrderMark(bytes);
  const { depth, values, first } = measure(body);
  if (depth > max_depth) return describeMalformed(`must have at most ${max_depth} levels`);
  if (values > max_values) return { fault: 'tooManyValues', isObject: first === openingBrace, reason: tooManyValues };
  try {
    return { value: JSON.parse(body.toString()) };
  } catch (error) {
    // names the character and where it is
    return describeMalformed((error as SyntaxError).message);
  }
}

const [space = 0, quote, backslash, comma, openingBracket, openingBrace, closingBracket, closingBrace] =
  Buffer.from(' "\\,[{]}');

/**
 * Measures JSON on its bytes: parsing what is too deep or has too many values is what must not happen.
 * @returns levels of nesting, counted up to the limit, values, exact for well-formed JSON, and the first byte beside space
 */
function measure(body: Buffer) {
  let open = 0;
  let depth = 0;
  let values = 1;
  let first: number | undefined;
  let previous: number | undefined;
  let isQuoted = false;
  for (let at = 0; at < body.length && depth <= max_depth; at++) {
    const byte = body[at] as number;
    if (isQuoted) {
      if (byte === backslash) at++;
      else if (byte === quote) isQuoted = false;
      continue;
    }
    if (byte <= space) continue;
    // a container adds its first member, each comma another one
    if (byte === quote) isQuoted = true;
    else if (byte === comma) values++;
    else if (byte === openingBrace || byte === openingBracket) {
      depth = Math.max(depth, ++open);
      values++;
    } else if (byte === closingBrace || byte === closingBracket) {
      open--;
      if (previous === openingBrace || previous === openingBracket) values--;
    }
    first ??= byte;
    previous = byte;
  }
  return { depth, values, first };
}
