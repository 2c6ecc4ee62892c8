import { describe, expect, it } from '@jest/globals';
import { max_body_values, parseJson } from '../../src/schema/json.js';

const parse = (text: string, max_values?: number) => parseJson(Buffer.from(text), max_values);

/** Counts values the slow way. */
function countValues(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 1;
  return Object.values(value).reduce((sum: number, member) => sum + countValues(member), 1);
}

describe('parseJson (reference/requests.md#bodies)', () => {
  it.each([
    '{}',
    '[]',
    ' { "a" : [ ] , "b":[{},"x",1.5e3,true,null] } ',
    '"a,[{"',
    '7',
    '{"a\\"]":"\\\\","b":"[,"}',
    '[[[1],[]]]',
  ])('counts each object, array, text, number, boolean and null of %s', (text) => {
    const value: unknown = JSON.parse(text);
    const count = countValues(value);
    expect(parse(text, count)).toEqual({ value });
    const isObject = text.trimStart().startsWith('{');
    expect(parse(text, count - 1)).toMatchObject({ fault: 'tooManyValues', isObject });
  });

  it('accepts 50,000 values and no more', () => {
    const list = (length: number) => `[${Array(length).fill('0').join(', ')}]`;
    expect(max_body_values).toBe(50_000);
    expect(parse(list(49_999)).fault).toBeUndefined();
    expect(parse(list(50_000)).fault).toBe('tooManyValues');
  });

  it.each(['', ' ', '{', '[1,]', '{"a"}', 'nul', '{"a":1}}', '"', '[1 2]'])('reports %j as malformed', (text) => {
    expect(parse(text)).toEqual({ fault: 'malformed', isObject: false, reason: expect.any(String) });
  });

  it('reports invalid UTF-8, and nesting deeper than 32, before it counts', () => {
    expect(parseJson(Buffer.from([0x22, 0xff, 0x22]), 0).fault).toBe('malformed');
    expect(parse(`${'['.repeat(32)}${']'.repeat(32)}`).fault).toBeUndefined();
    expect(parse(`${'['.repeat(33)}${']'.repeat(33)}`).fault).toBe('malformed');
    expect(parse(`[${'0,'.repeat(60_000)}${'['.repeat(33)}${']'.repeat(33)}]`).fault).toBe('malformed');
  });
});
