import { describe, expect, it } from '@jest/globals';
import { XMLValidator } from 'fast-xml-parser';
import { isElementName, isXmlName } from '../../src/schema/xml-names.js';
import { toXml } from '../../src/serialize/plain-xml.js';
import { wordsOf } from '../support/words.js';

const PROLOG = '<?xml version="1.0" encoding="UTF-8"?>';

describe('toXml', () => {
  it.each<[string, string]>([
    ['{}', '<r/>'],
    ['{"a":"","b":{},"c":[],"d":null}', '<r><a/><b/><c/><d nil="true"/></r>'],
    [
      '{"a":true,"b":false,"c":1.5,"d":-1e300,"e":-0}',
      '<r><a>true</a><b>false</b><c>1.5</c><d>-1e+300</d><e>0</e></r>',
    ],
    [
      '{"tags":["1",[2,[]],null,{}]}',
      '<r><tags><item>1</item><item><item>2</item><item/></item><item nil="true"/><item/></tags></r>',
    ],
    ['{"a":"<b>&amp;\\"]]>"}', '<r><a>&lt;b&gt;&amp;amp;"]]&gt;</a></r>'],
    ['{"a":"&#0;&nbsp;&#x41;"}', '<r><a>&amp;#0;&amp;nbsp;&amp;#x41;</a></r>'],
    [
      '{"a":"\\t\\n\\r \\u0000\\u001f\\u007f\\ufffe\\uffff\\ufffd\\ud800"}',
      '<r><a>\t\n&#13; \ufffd\ufffd\u007f\ufffd\ufffd\ufffd\ufffd</a></r>',
    ],
    ['{"a b":1}', '<r><entry key="a b">1</entry></r>'],
    ['{"":1,"1":2}', '<r><entry key="1">2</entry><entry key="">1</entry></r>'],
    ['{"<\\"\\t\\n\\r&lt;\\u0001":""}', '<r><entry key="&lt;&quot;&#9;&#10;&#13;&amp;lt;\ufffd"/></r>'],
    [
      '{"__proto__":{"constructor":1},"@a":2,"#":3,"!":4,"?":5,"$":6}',
      '<r><__proto__><constructor>1</constructor></__proto__><entry key="@a">2</entry><entry key="#">3</entry>' +
        '<entry key="!">4</entry><entry key="?">5</entry><entry key="$">6</entry></r>',
    ],
    ['{"result":[1]}', '<r><result><item>1</item></result></r>'],
  ])('%s', (json, expected) => {
    expect(toXml('r', JSON.parse(json))).toBe(PROLOG + expected);
  });

  it('omits undefined members and writes NaN as nil, as JSON does', () => {
    expect(toXml('r', { a: undefined, b: Number.NaN })).toBe(`${PROLOG}<r><b nil="true"/></r>`);
  });
});

describe('isXmlName', () => {
  it.each(wordsOf('a _ _id a-b a.b a1 é über Ωmega ключ 日本 カー 한국 xm axml __proto__'))('accepts %j', (key) => {
    expect(isXmlName(key)).toBe(true);
  });

  it.each([
    ...wordsOf('1abc -a .a a:b : xml XMLfoo xMlns $where 😀 a😀 × ÷ ſ ·a ー 〱 ℵ'),
    '',
    'a b',
    'a\n',
    '\na',
    '\ud800',
    '\ufffd',
  ])('rejects %j', (key) => {
    expect(isXmlName(key)).toBe(false);
  });

  it('decides alike for bytes and text, and every accepted name can be built and parsed', () => {
    const names: string[] = [];
    for (let code = 0; code < 0x10000; code++) {
      for (const key of [String.fromCharCode(code), `a${String.fromCharCode(code)}`]) {
        if (!key.isWellFormed()) continue;
        const bytes = Buffer.from(`<${key}>`);
        if (isElementName(bytes, 1, bytes.length - 1) !== isXmlName(key)) throw new Error(`differs for ${code}`);
        if (isXmlName(key)) names.push(key);
      }
    }
    expect(names.length).toBeGreaterThan(64_000);
    const some = names.filter((_, i) => i < 2000 || i % 29 === 0);
    const xml = toXml('r', Object.fromEntries(some.map((name) => [name, 1])));
    expect(XMLValidator.validate(xml)).toBe(true);
  });
});
