import { describe, expect, it } from '@jest/globals';
import { isXmlPreferred, parseExplicitFormat } from '../../src/http/negotiate.js';

const BROWSER = 'text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8';

describe('wantsXml', () => {
  it.each<[string | undefined, boolean]>([
    [undefined, false],
    ['', false],
    ['*/*', false],
    ['application/json', false],
    ['application/xml', true],
    ['text/xml', true],
    ['Application/XML; charset=utf-8', true],
    ['application/atom+xml', true],
    [BROWSER, true],
    ['application/xml, */*', false],
    ['application/xml, */*;q=0.1', true],
    ['application/xml, application/json', false],
    ['application/json;q=0.9, application/xml', true],
    ['application/json, application/xml;q=0.9', false],
    ['application/json ; q = 0.5 , text/xml ; q = 0.6', true],
    ['application/json;q=0.2, */*;q=0.9, application/xml;q=0.5', true],
    ['application/*;q=0.3, */*;q=0.9, application/xml;q=0.5', true],
    ['application/vnd.api+json;q=0.4, */*, application/xml;q=0.5', true],
    ['application/xml;q=0', false],
    ['application/xml;q=0, application/json;q=0', false],
    ['application/xml;q=0.001, application/json;q=0', true],
    ['application/xml;q=.5, application/json;q=.4', true],
    ['application/xml;q=much', false],
    ['application/xml;q=1.5', false],
    ['application/xml;q=-1', false],
    ['application/*', false],
    ['text/*', false],
    ['text/html', false],
    ['xml', false],
    ['+xml', false],
    [';;,,,;q=1', false],
    ['text/plain;a="application/json,application/xml"', false],
    ['application/xml;a="\\",q=0;q=0";q=0.5, application/json;q=0.4', true],
    ['application/xml;a="never closed, application/json', true],
  ])('%j → %j', (accept, expected) => {
    expect(isXmlPreferred(accept)).toBe(expected);
  });

  it('parses hostile headers in linear time', () => {
    const parts = ['"', '\\"', ',', ';', 'q=1;', ' ', 'a/', 'a/+xml', '1', ';q=1111111111'];
    const start = process.cpuUsage();
    for (const part of parts) {
      isXmlPreferred(part.repeat(100_000));
      parseExplicitFormat(`a/b;q=${part.repeat(100_000)}`);
    }
    expect(process.cpuUsage(start).user).toBeLessThan(5_000_000);
  });
});

describe('explicitFormat', () => {
  it.each<[string | undefined, 'json' | 'xml' | undefined]>([
    [undefined, undefined],
    ['*/*', undefined],
    ['application/*', undefined],
    ['application/octet-stream', undefined],
    ['application/json', 'json'],
    ['application/hal+json, */*', 'json'],
    ['application/xml', 'xml'],
    ['text/xml;q=0.1, */*', 'xml'],
    ['application/json, application/xml', 'json'],
    ['application/json;q=0.5, application/xml', 'xml'],
    ['application/json;q=0', undefined],
    ['application/json;q=0, application/xml;q=0', undefined],
    ['application/json;q=0, application/xml;q=0.1', 'xml'],
  ])('%j → %j', (accept, expected) => {
    expect(parseExplicitFormat(accept)).toBe(expected);
  });
});
