/** Letters that both the 4th and the 5th edition of XML 1.0 allow as the first of a name. */
const firstLetters =
  'A-Z_a-z' +
  '\\u00C0-\\u00D6\\u00D8-\\u00F6\\u00F8-\\u0131\\u0134-\\u013E\\u0141-\\u0148\\u014A-\\u017E' + // Latin
  '\\u0386\\u0388-\\u038A\\u038C\\u038E-\\u03A1\\u03A3-\\u03CE' + // Greek
  '\\u0401-\\u040C\\u040E-\\u044F\\u0451-\\u045C\\u045E-\\u0481' + // Cyrillic
  '\\u3007\\u4E00-\\u9FA5\\u3041-\\u3094\\u30A1-\\u30FA\\uAC00-\\uD7A3'; // ideographs, kana, hangul syllables
const otherLetters = `${firstLetters}0-9.\\u00B7\\u3005\\u30FC-\\u30FE-`;

const xmlName = new RegExp(`^(?![Xx][Mm][Ll])[${firstLetters}][${otherLetters}]*$`);

/**
 * Accepts keys that name an XML element for every parser (reference/requests.md#xml). Narrower than either edition
 * of XML 1.0: expat follows the 4th and libxml2 the 5th, a colon is a namespace, and names in `xml…` are reserved.
 */
export function isXmlName(key: string): boolean {
  return xmlName.test(key);
}

/** ASCII bytes in a name: 2 is allowed anywhere, 1 after the first letter, 0 nowhere. */
const allowedAscii = Uint8Array.from({ length: 128 }, (_, byte) => {
  const text = String.fromCharCode(byte);
  if (isXmlName(text)) return 2;
  return isXmlName(`a${text}`) ? 1 : 0;
});

/** Decides like `isXmlName` for UTF-8 from `start` to `end`, without a string for an ordinary key. */
export function isElementName(source: Uint8Array, start: number, end: number): boolean {
  for (let i = start; i < end; i++) {
    const byte = source[i] as number;
    if (byte >= 0x80) return isXmlName(Buffer.from(source.subarray(start, end)).toString());
    if ((allowedAscii[byte] as number) < (i === start ? 2 : 1)) return false;
  }
  return end > start && !isReserved(source, start, end);
}

/** Detects names that begin with `xml` in any case. */
function isReserved(source: Uint8Array, start: number, end: number): boolean {
  if (end - start < 3 || ((source[start] as number) | 0x20) !== 0x78) return false;
  return ((source[start + 1] as number) | 0x20) === 0x6d && ((source[start + 2] as number) | 0x20) === 0x6c;
}
