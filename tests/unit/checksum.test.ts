import { describe, expect, it } from '@jest/globals';
import { checksumOf } from '../../src/streams/checksum.js';

// digests computed with `printf '%s' CANONICAL | openssl dgst -sha1 [-hmac KEY]`
const key = '0123456789abcdef0123456789abcdef01234567';

// reference/streams.md#checksum
describe('the checksum of a stream', () => {
  it('is the SHA-1 of the canonical JSON if the device has no key', () => {
    expect(checksumOf({ unit: '°C', t: 21.5, n: 1 }, undefined)).toBe('04cfa51e43f63fd1a43d94ae9a7446a6f4e402be');
  });

  it('is the HMAC-SHA1 of the canonical JSON, keyed with the text of the key', () => {
    expect(checksumOf({ unit: '°C', t: 21.5, n: 1 }, key)).toBe('06d157e0c9f1194e6ab75a6b62b503b6170f3325');
  });

  it('does not depend on the formatting sent', () => {
    const written = [
      '{"n":1,"t":21.5,"unit":"°C"}',
      '{ "unit" : "\\u00b0C", "t" : 2.15e1, "n" : 1.0 }',
      '{"t":21.50,"unit":"°\\u0043","n":1}',
    ];
    for (const text of written)
      expect(checksumOf(JSON.parse(text), undefined)).toBe('04cfa51e43f63fd1a43d94ae9a7446a6f4e402be');
  });

  it('writes numbers, strings and literals as in RFC 8785', () => {
    const sent = String.raw`{
      "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
      "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
      "literals": [null, true, false]
    }`;
    expect(checksumOf(JSON.parse(sent), undefined)).toBe('616a3ff076f6ed2fbf55bbc2bcd2248767df657b');
  });

  it('sorts keys by UTF-16 code units', () => {
    const sent = '{"\\u20ac":3,"\\r":1,"\\ufb33":5,"1":2,"\\ud83d\\ude00":4}';
    expect(checksumOf(JSON.parse(sent), undefined)).toBe('3eba71de2142b13cba24f7e33a65d0b58be0352d');
  });

  it('includes keys with a meaning in JavaScript', () => {
    const digest = (text: string) => checksumOf(JSON.parse(text), undefined);
    expect(digest('{"__proto__":1}')).not.toBe(digest('{}'));
    expect(digest('{"toJSON":1}')).not.toBe(digest('{}'));
  });

  it('differs for different data', () => {
    const digests = [{ a: 1 }, { a: '1' }, { a: [1] }, { a: null }, {}, { A: 1 }].map((data) => checksumOf(data, key));
    expect(new Set(digests).size).toBe(digests.length);
  });
});
