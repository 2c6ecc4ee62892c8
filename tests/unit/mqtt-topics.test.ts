import { describe, expect, it } from '@jest/globals';
import {
  encodeId,
  formatStreamTopic,
  isCovering,
  isTopicName,
  parseStreamTopic,
  topicsOf,
} from '../../src/mqtt/protocol/topics.js';
import { isTopicFilter } from '../../src/resources/mqtt.js';

/** MQTT 3.1.1 §4.7, level by level, as slowly as it is written there. */
function matches(filter: readonly string[], topic: readonly string[]): boolean {
  const [level, ...filters] = filter;
  const [name, ...names] = topic;
  if (level === undefined) return name === undefined;
  if (level === '#') return true;
  if (name === undefined) return false;
  return (level === '+' || level === name) && matches(filters, names);
}

/** All sequences of 1 to `maxLength` of `parts`. */
function sequences(parts: readonly string[], maxLength: number): string[][] {
  const all: string[][] = [];
  let last: string[][] = [[]];
  for (let length = 1; length <= maxLength; length++) {
    last = last.flatMap((one) => parts.map((part) => [...one, part]));
    all.push(...last);
  }
  return all;
}

const covers = (wide: string, narrow: string) => isCovering(wide.split('/'), narrow.split('/'));

describe('coversLevels', () => {
  it('agrees with matching every topic, for all filters of up to three levels', () => {
    const filters = sequences(['a', 'b', '', '+', '#'], 3).filter((one) => isTopicFilter(one.join('/')));
    const topics = sequences(['a', 'b', 'other', ''], 4);
    const matched = new Map(filters.map((filter) => [filter, topics.filter((topic) => matches(filter, topic))]));
    const wrong: string[] = [];
    for (const wide of filters) {
      const all = new Set(matched.get(wide));
      for (const narrow of filters) {
        const expected = (matched.get(narrow) ?? []).every((topic) => all.has(topic));
        if (covers(wide.join('/'), narrow.join('/')) !== expected) wrong.push(`${wide.join('/')} ${narrow.join('/')}`);
      }
    }
    expect(filters.length).toBeGreaterThan(80);
    expect(wrong).toEqual([]);
  });

  it.each([
    ['#', 'a/b', true],
    ['#', '+/#', true],
    ['+/#', '#', true],
    ['a/#', 'a', true],
    ['a/+', 'a', false],
    ['a/+', 'a/', true],
    ['a/+', 'a/#', false],
    ['a/b', 'a/+', false],
    ['+/streams', 'x@acme/streams', true],
    ['+/streams', '+/+', false],
    ['A', 'a', false],
  ])('%s covers %s: %s', (wide, narrow, expected) => {
    expect(covers(wide, narrow)).toBe(expected);
  });
});

describe('topics of devices', () => {
  it('percent-encodes what has a meaning in topics, and nothing else', () => {
    expect(encodeId('a/b+c#d%e f@acme')).toBe('a%2Fb%2Bc%23d%25e f@acme');
    expect(encodeId('$$a$b@acme')).toBe('%24$a$b@acme');
    expect(topicsOf('a/b@acme')).toEqual([
      'a%2Fb@acme/streams',
      'a%2Fb@acme/status',
      'a%2Fb@acme/state/desired',
      'a%2Fb@acme/commands',
      'a%2Fb@acme/state/reported',
      'a%2Fb@acme/commands/result',
    ]);
    expect(formatStreamTopic('a@acme', 'sta')).toBe('a@acme/status');
  });

  it.each([
    ['a@acme/streams', { first: 'a@acme', device: 'a@acme', _t: 'str' }],
    ['a@acme/status', { first: 'a@acme', device: 'a@acme', _t: 'sta' }],
    ['a%2Fb%25@acme/streams', { first: 'a%2Fb%25@acme', device: 'a/b%@acme', _t: 'str' }],
    ['%24a$@acme/streams', { first: '%24a$@acme', device: '$a$@acme', _t: 'str' }],
    // another spelling of a device would reach other subscribers than its own topic
    ['a%40acme/streams', { first: 'a%40acme', device: undefined, _t: 'str' }],
    ['a%2fb@acme/streams', { first: 'a%2fb@acme', device: undefined, _t: 'str' }],
    ['a%zz@acme/streams', { first: 'a%zz@acme', device: undefined, _t: 'str' }],
    ['a%24@acme/streams', { first: 'a%24@acme', device: undefined, _t: 'str' }],
    ['$a@acme/streams', { first: '$a@acme', device: undefined, _t: 'str' }],
    ['homeassistant/status', undefined],
    ['50%/streams', undefined],
    ['/streams', undefined],
    ['streams', undefined],
    ['a@acme/streams/', undefined],
    ['a@acme/b/streams', undefined],
    ['a@acme/Streams', undefined],
    ['a@acme/toString', undefined],
  ])('%s', (topic, expected) => {
    expect(parseStreamTopic(topic)).toEqual(expected);
  });

  it('takes no wildcards, NUL or $ in the topic of a message', () => {
    expect(['a', 'a/b', '/', 'a$', 'ü/x'].filter((topic) => !isTopicName(topic))).toEqual([]);
    expect(['', '+', 'a/#', 'a+b', '$SYS/x', '$x', 'a\0'].filter(isTopicName)).toEqual([]);
  });

  it('have at most 100 levels, as filters have', () => {
    const levels = (count: number) => Array(count).fill('a').join('/');
    expect([isTopicName(levels(100)), isTopicFilter(levels(100))]).toEqual([true, true]);
    expect([isTopicName(levels(101)), isTopicFilter(levels(101), 1000)]).toEqual([false, false]);
  });
});
