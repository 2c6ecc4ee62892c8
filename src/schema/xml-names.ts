/** Letters that the 4th and the 5th edition of XML 1.0 both let a name begin with. */
const START =
  'A-Z_a-z' +
  '\\u00C0-\\u00D6\\u00D8-\\u00F6\\u00F8-\\u0131\\u0134-\\u013E\\u0141-\\u0148\\u014A-\\u017E' + // Latin
  '\\u0386\\u0388-\\u038A\\u038C\\u038E-\\u03A1\\u03A3-\\u03CE' + // Greek
  '\\u0401-\\u040C\\u040E-\\u044F\\u0451-\\u045C\\u045E-\\u0481' + // Cyrillic
  '\\u3007\\u4E00-\\u9FA5\\u3041-\\u3094\\u30A1-\\u30FA\\uAC00-\\uD7A3'; // ideographs, kana, hangul syllables
const REST = `${START}0-9.\\u00B7\\u3005\\u30FC-\\u30FE-`;

const NAME = new RegExp(`^(?![Xx][Mm][Ll])[${START}][${REST}]*$`);

/**
 * Whether `key` can name an XML element for every parser (contract 4). Narrower than either edition of XML 1.0:
 * expat follows the 4th and libxml2 the 5th, a colon means a namespace, and names that begin with `xml` are reserved.
 */
export function isXmlName(key: string): boolean {
  return NAME.test(key);
}

/** Which ASCII bytes may stand in a name: 2 anywhere, 1 not at its beginning. */
const ASCII = Uint8Array.from({ length: 128 }, (_, byte) => {
  const text = String.fromCharCode(byte);
  if (isXmlName(text)) return 2;
  return isXmlName(`a${text}`) ? 1 : 0;
});

/** The same for the UTF-8 text from `start` to `end`, without making a string of an ordinary key. */
export function namesElement(source: Uint8Array, start: number, end: number): boolean {
  for (let i = start; i < end; i++) {
    const byte = source[i] as number;
    if (byte >= 0x80) return isXmlName(Buffer.from(source.subarray(start, end)).toString());
    if ((ASCII[byte] as number) < (i === start ? 2 : 1)) return false;
  }
  return end > start && !isReserved(source, start, end);
}

/** Begins with `xml` in any case. */
function isReserved(source: Uint8Array, start: number, end: number): boolean {
  if (end - start < 3 || ((source[start] as number) | 0x20) !== 0x78) return false;
  return ((source[start + 1] as number) | 0x20) === 0x6d && ((source[start + 2] as number) | 0x20) === 0x6c;
}
