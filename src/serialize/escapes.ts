/** The replacement of each byte; undefined keeps the byte. */
export type Escapes = readonly (Buffer | undefined)[];

/** First byte of U+FFFE and U+FFFF, which are EF BF BE and EF BF BF. */
export const noncharacter_byte = 0xef;

/** Builds a table from `replace`, which is called with each ASCII character; `noncharacter` replaces U+FFFE and U+FFFF. */
export function createEscapes(replace: (text: string) => string | undefined, noncharacter?: string): Escapes {
  const table: (Buffer | undefined)[] = Array.from({ length: 256 }, (_, byte) => {
    const text = byte < 0x80 ? replace(String.fromCharCode(byte)) : undefined;
    return text === undefined ? undefined : Buffer.from(text);
  });
  table[noncharacter_byte] = noncharacter === undefined ? undefined : Buffer.from(noncharacter);
  return table;
}

/** Detects U+FFFE and U+FFFF by the two bytes after the one at `at`. */
export function isNoncharacter(source: Uint8Array, at: number): boolean {
  return source[at + 1] === 0xbf && (source[at + 2] as number) >= 0xbe;
}
