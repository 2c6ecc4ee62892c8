import { describe, expect, it } from '@jest/globals';
import { countRaises } from '../../src/console/alarms/raises.js';
import { readLines, readMessages } from '../../src/console/api/event-stream.js';
import { chooseBearer, readPayload } from '../../src/console/api/tokens.js';
import { findMeasure, groupByUnit, isCounter } from '../../src/console/charts/measures.js';
import { bucketsOf, findNumberPaths } from '../../src/console/charts/series.js';
import { compareStates, createMergePatch } from '../../src/console/device/state-rows.js';
import { findChanges, findConflicts } from '../../src/console/edit/changes.js';
import { formatScalar, parseScalar } from '../../src/console/forms/scalars.js';
import { findPieces, pickRecords, readColumns } from '../../src/console/import/file-pieces.js';
import { compareLines } from '../../src/console/lib/compare.js';
import { combine, describeCondition, isComplete, judge } from '../../src/console/lib/conditions.js';
import { encodeForTopic, quoteForShell, toBase64 } from '../../src/console/lib/encode.js';
import { valueAt } from '../../src/console/lib/paths.js';

describe('the changes of a form', () => {
  it('are the fields that differ, null for those that were removed', () => {
    const base = { name: 'a', description: 'b', properties: { x: 1, y: [2] }, enabled: true };
    const edited = { name: 'c', properties: { y: [2], x: 1 }, enabled: false, sensor: undefined };
    expect(findChanges(base, edited, ['name', 'description', 'properties', 'enabled', 'sensor'])).toEqual({
      name: 'c',
      description: null,
      enabled: false,
    });
  });

  it('move a device without giving its old parent', () => {
    const edited = { id_group: undefined, id_asset: 'b@acme' };
    expect(findChanges({ id_group: 'a@acme' }, edited, ['id_group', 'id_asset'])).toEqual({ id_asset: 'b@acme' });
  });

  it('remove the part of the fleet of an alarm rule', () => {
    expect(findChanges({ id_group: 'a' }, { id_model: 'b' }, ['id_group', 'id_model'], [])).toEqual({
      ...{ id_group: null, id_model: 'b' },
    });
  });

  it('are in conflict where both sides changed a field to different values', () => {
    const base = { name: 'a', description: 'b', sensor: 'c' };
    const theirs = { name: 'x', description: 'y', sensor: 'c' };
    const mine = { name: 'z', description: 'y', sensor: 'd' };
    expect(findConflicts(base, theirs, mine)).toEqual([{ field: 'name', base: 'a', theirs: 'x', mine: 'z' }]);
  });
});

describe('the comparison of two files', () => {
  it('keeps equal lines, and shows removed ones before added ones', () => {
    expect(compareLines('a\nb\nc', 'a\nx\nc\nd')).toEqual([
      { kind: 'same', text: 'a' },
      { kind: 'removed', text: 'b' },
      { kind: 'added', text: 'x' },
      { kind: 'same', text: 'c' },
      { kind: 'added', text: 'd' },
    ]);
  });

  it('is refused for more than 2000 lines', () => {
    expect(compareLines('\n'.repeat(2000), '')).toBeUndefined();
  });
});

it('names paths of numbers as a series does', () => {
  const data = { bar: 1, text: 'x', a: { b: 2, 'c.d': 3 }, 'e/f': 4, '/g': 5, at: 6, 'h,i': 7, list: [8], '': 9 };
  expect(findNumberPaths(data)).toEqual(['bar', 'a.b', '/a/c.d', 'e/f', '/~1g', '/at', '/']);
});

it.each([
  [30, { points: 300 }],
  [90, { every: 'day', time_zone: 'Asia/Tokyo' }],
  [1200, { every: 'week', time_zone: 'Asia/Tokyo' }],
  [6000, { every: 'month', time_zone: 'Asia/Tokyo' }],
])('asks for the buckets of a chart of %d days', (days, buckets) => {
  expect(bucketsOf(days * 86_400, 'Asia/Tokyo')).toEqual(buckets);
});

describe('charts', () => {
  const measures = [
    { path: '/air/t', name: 'Air', unit: '°C' },
    { path: 'soil', unit: '°C' },
  ];

  it('have the paths of one unit, and one path without', () => {
    expect(groupByUnit(['air.t', 'rpm', 'soil', 'bar'], measures).map(({ unit, paths }) => [unit, paths])).toEqual([
      ['°C', ['air.t', 'soil']],
      ['', ['rpm']],
      ['', ['bar']],
    ]);
    expect(findMeasure(measures, 'air.t')).toEqual({ path: 'air.t', name: 'Air', unit: '°C' });
    expect(findMeasure(measures, 'soil').name).toBe('soil');
  });

  it('read the value at a path', () => {
    const data = { a: { b: 1 }, 'c.d': { 'e/f': 2 } };
    expect(['a.b', '/a/b', '/c.d/e~1f', 'a.c', 'toString'].map((path) => valueAt(data, path))).toEqual([
      1,
      1,
      2,
      undefined,
      undefined,
    ]);
  });

  it.each([
    [true, [80, 70, 60, 50, 40, 30, 20, 10]],
    [true, [80, 70, 70, 50, 40, 30, 20, 10]],
    [false, [80, 70, 60, 50, 40, 30, 20, 30]],
    [false, [3, 3, 3, 3, 3, 3, 3, 2]],
    [false, [8.5, 7, 6, 5, 4, 3, 2, 1]],
    [false, [3, 2, 1]],
  ])('say %s to whether %j is a counter, the newest value first', (expected, values) => {
    expect(isCounter(values)).toBe(expected);
  });
});

describe('the state of a device', () => {
  it('is compared by path: what the device has yet to report, and what it rejects', () => {
    const state = {
      desired: { led: { on: true, level: 3 }, interval: 60, 'a.b': 1, days: [1] },
      reported: { led: { on: false }, interval: 60, up: true, rejected: { '/led/level': 'too bright', int: 'x' } },
      delta: { led: { on: true }, 'a.b': 1 },
      desired_version: 4,
    };
    expect(compareStates(state)).toEqual([
      { path: '/a.b', desired: 1, reported: undefined, mark: 'pending' },
      { path: 'days', desired: [1], reported: undefined, mark: undefined },
      { path: 'interval', desired: 60, reported: 60, mark: undefined },
      { path: 'led.level', desired: 3, reported: undefined, mark: 'rejected', reason: 'too bright' },
      { path: 'led.on', desired: true, reported: false, mark: 'pending' },
      { path: 'up', desired: undefined, reported: true, mark: undefined },
    ]);
  });

  it('is patched where it differs, at any depth', () => {
    const from = { led: { on: true, level: 3 }, interval: 60, days: [1], mode: 'eco' };
    const to = { led: { on: true }, interval: { s: 60 }, days: [1, 2], mode: 'eco' };
    expect(createMergePatch(from, to)).toEqual({ led: { level: null }, interval: { s: 60 }, days: [1, 2] });
    expect(createMergePatch({}, { toString: 1 })).toEqual({ toString: 1 });
    expect(createMergePatch(from, from)).toEqual({});
  });
});

describe('a form', () => {
  it.each([
    ['8', 8],
    ['"8"', '8'],
    ['true', true],
    ['"true"', 'true'],
    ['open', 'open'],
    ['null', 'null'],
    ['{}', '{}'],
    ['', undefined],
  ])('reads %j as a number, a boolean or a text, and writes it so', (text, value) => {
    expect([parseScalar(text), formatScalar(value)]).toEqual([value, text]);
  });
});

it.each([
  [{ path: 'bar', op: '>', value: 8, clear: 7 }, 'bar > 8, until 7'],
  [{ path: 'mode', op: '=', value: '8' }, 'mode = "8"'],
  [{ status: ['no_data', 'disconnected'] }, 'status is no_data or disconnected'],
  [{ absent: 'bar', minutes: 30 }, 'no bar for 30 min'],
])('describes the condition %j', (condition, text) => {
  expect(describeCondition(condition)).toBe(text);
});

it.each([
  [{ path: 'bar', op: '>', value: 8 }, { bar: 8.5 }, true],
  [{ path: 'bar', op: '>', value: 8 }, { bar: 8 }, false],
  [{ path: 'bar', op: '<=', value: 8 }, { bar: '7' }, false],
  [{ path: 'bar', op: '!=', value: 8 }, { bar: null }, true],
  [{ path: 'mode', op: '=', value: 'off' }, { mode: 'off' }, true],
  [{ path: 'bar', op: '!=', value: 8 }, { rpm: 1 }, undefined],
  [{ path: 'bar', op: '!=', value: 8 }, undefined, false],
  [{ path: 'bar', op: '', value: 8 }, { bar: 1 }, undefined],
  [{ status: ['no_status'] }, undefined, true],
  [{ absent: 'bar', minutes: 5 }, { bar: 1 }, false],
  [{ absent: 'bar', minutes: 5 }, { rpm: 1 }, undefined],
  [{ absent: 'rpm', minutes: 2 }, { rpm: 1 }, true],
])('judges the condition %j by the last data %j, received two minutes ago', (condition, data, holds) => {
  const device = { status: 'no_status', created_at: 0, last_stream_at: 880, ...(data && { latest: { data } }) };
  expect(judge(condition, device, 1000)).toBe(holds);
});

it.each([
  [{ path: 'bar', op: '!=', value: 0 }, true],
  [{ path: 'bar', op: '=>', value: 8 }, false],
  [{ path: 'bar', op: '>' }, false],
  [{ path: '', op: '>', value: 8 }, false],
  [{ status: [] }, false],
  [{ absent: 'bar' }, false],
  [{ absent: 'bar', minutes: 5 }, true],
  [{}, false],
])('tells whether the condition %j is complete', (condition, complete) => {
  expect(isComplete(condition)).toBe(complete);
});

describe('how often a rule would have been raised', () => {
  /** Minutes with the extremes of each; without a pair nothing was sent. */
  const minutesOf = (...extremes: [number, number][]) =>
    extremes.map(([min, max], index) => ({ at: index * 60, ...(min !== undefined && { min, max }) }));
  const above = { op: '>', value: 8, clear: 8, for_s: 0 };
  const silence = [] as unknown as [number, number];

  it.each([
    ['twice, and not before a value is beyond the limit', above, minutesOf([1, 8], [7, 9], [8, 8], [9, 9], [9, 9]), 2],
    ['below', { op: '<=', value: 2, clear: 3, for_s: 0 }, minutesOf([2, 4], [1, 1], [2, 3], [4, 4], [2, 2]), 3],
    ['once until it is cleared', { ...above, clear: 5 }, minutesOf([6, 9], [6, 9], [5, 9], [6, 9]), 2],
    ['after three minutes', { ...above, for_s: 180 }, minutesOf([9, 9], [9, 9], [7, 9], [9, 9], [9, 9], [9, 9]), 1],
    ['while nothing is sent', { ...above, for_s: 180 }, minutesOf([9, 9], silence, [9, 9]), 1],
    ['never', above, minutesOf([7, 8], silence), 0],
  ])('is counted: %s', (_case, rule, buckets, count) => {
    expect(countRaises(buckets, rule, 60)).toBe(count);
  });
});

it.each([
  ['all', [true, undefined], undefined],
  ['all', [false, undefined], false],
  ['any', [false, undefined], undefined],
  ['any', [true, undefined], true],
  [undefined, [true, true], true],
])('combines conditions of which %s have to hold: %j', (match, results, holds) => {
  expect(combine(results, match)).toBe(holds);
});

describe('a live feed', () => {
  const bodyOf = (...parts: string[]) =>
    new ReadableStream<Uint8Array>({
      start(controller) {
        for (const part of parts) controller.enqueue(new TextEncoder().encode(part));
        controller.close();
      },
    });
  async function collect<T>(parts: AsyncIterable<T>): Promise<T[]> {
    const collected: T[] = [];
    for await (const part of parts) collected.push(part);
    return collected;
  }
  const never = new AbortController().signal;

  it('is split into messages, wherever the parts end', async () => {
    const text =
      ': hello\n\nid: 1\nevent: device.created\ndata: {"a":\ndata: 1}\n\nid: 2\r\ndata: é\r\n\r\ndata: unfinished';
    const bytes = [...text];
    const messages = await collect(readMessages(bodyOf(...bytes), never));
    expect(messages).toEqual([
      { id: '1', event: 'device.created', data: '{"a":\n1}' },
      { id: '2', event: 'message', data: 'é' },
    ]);
  });

  it('reads the last line of a file without a line break', async () => {
    expect(await collect(readLines(bodyOf('a\nb', 'c'), never))).toEqual(['a', 'bc']);
  });
});

describe('a file to import', () => {
  it('is divided after so many records, each with the number of lines before it', async () => {
    expect(await findPieces(new Blob(['1\n2\n3\n4\n5']), false, 2)).toEqual({
      header_bytes: 0,
      header_lines: 0,
      lines: 5,
      pieces: [
        { start: 0, end: 4, lines_before: 0 },
        { start: 4, end: 8, lines_before: 2 },
        { start: 8, end: 9, lines_before: 4 },
      ],
    });
  });

  it('has its CSV header beside, and no piece ends in a quoted cell', async () => {
    const csv = 'name,"a\nb"\none,"x ""y""\n\nz"\ntwo,\n';
    const { pieces, ...rest } = await findPieces(new Blob([csv]), true, 1);
    expect(rest).toEqual({ header_bytes: 11, header_lines: 2, lines: 6 });
    expect(pieces.map(({ start, end }) => csv.slice(start, end))).toEqual(['one,"x ""y""\n\nz"\n', 'two,\n']);
    expect(pieces.map(({ lines_before }) => lines_before)).toEqual([2, 5]);
  });

  it('gives the records that begin at some lines, with the header of a CSV', async () => {
    const csv = 'name\none\n"t\nwo"\nthree\nfour';
    expect(await (await pickRecords(new Blob([csv]), true, new Set([3, 6]))).text()).toBe('name\n"t\nwo"\nfour');
    expect(await (await pickRecords(new Blob(['1\n2\n3\n']), false, new Set([1, 3]))).text()).toBe('1\n3\n');
  });

  it('may have lines that end in CR, and a first line that names the separator', async () => {
    const csv = 'sep=;\rname;"a,\rb"\rone;1\rtwo;2\rthree;3';
    expect(readColumns('\ufeffsep=;\r\nname;a,b\r\n', true)).toEqual(['name', 'a,b']);
    expect(readColumns('name,type\rx,y', true)).toEqual(['name', 'type']);
    const { pieces, ...rest } = await findPieces(new Blob([csv]), true, 2);
    expect(rest).toEqual({ header_bytes: 18, header_lines: 3, lines: 6 });
    expect(pieces.map(({ start, end }) => csv.slice(start, end))).toEqual(['one;1\rtwo;2\r', 'three;3']);
    expect(await (await pickRecords(new Blob([csv]), true, new Set([5]))).text()).toBe('sep=;\rname;"a,\rb"\rtwo;2\r');
    const crlf = await findPieces(new Blob(['a\r\nb\r\n\r\nc\r\n']), false, 2);
    expect([crlf.lines, crlf.pieces.map(({ end }) => end)]).toEqual([4, [6, 11]]);
  });

  it.each(['', 'name,type\n'])('is one piece even if there is nothing in it: %j', async (text) => {
    expect((await findPieces(new Blob([text]), true, 2)).pieces).toHaveLength(1);
  });
});

describe('encoding', () => {
  it.each([
    ['Pump@demo', 'Pump@demo'],
    ['a/b+c#d%e@demo', 'a%2Fb%2Bc%23d%25e@demo'],
    ['$a$b@demo', '%24a$b@demo'],
  ])('writes %s for a topic', (id, topic) => {
    expect(encodeForTopic(id)).toBe(topic);
  });

  it.each([
    ['plain', 'plain'],
    ['two words', "'two words'"],
    ["it's; $(rm)", "'it'\\''s; $(rm)'"],
  ])('quotes %s for a shell', (word, quoted) => {
    expect(quoteForShell(word)).toBe(quoted);
  });

  it('encodes a file of several chunks', async () => {
    const bytes = Uint8Array.from({ length: 0x6000 * 2 + 1 }, (_, index) => index % 251);
    expect(await toBase64(new Blob([bytes]))).toBe(Buffer.from(bytes).toString('base64'));
  });
});

describe('the token that requests carry', () => {
  const token = (payload: unknown) => `e30.${Buffer.from(JSON.stringify(payload)).toString('base64url')}.c2ln`;
  const platform = { account: 'acme', username: 'olga' };

  it.each<[string, object]>([
    ['platform', { platform }],
    ['realm.platform', { realm: { platform } }],
    ['/https:~1~1example.org~1platform', { 'https://example.org/platform': platform }],
    ['/a~0b/0', { 'a~b': [platform] }],
  ])('is the one with the claim %s', (claim, payload) => {
    const [without, holding] = [token({ sub: 'u' }), token(payload)];
    expect(chooseBearer([without, holding], claim)).toBe(holding);
    expect(chooseBearer([holding, token(payload)], claim)).toBe(holding);
  });

  it('is the first if none has the claim, whatever their form', () => {
    expect(chooseBearer([token({}), 'opaque'], 'constructor')).toBe(token({}));
    expect(chooseBearer([undefined, 'opaque'], 'platform')).toBe('opaque');
  });

  it('has a payload in UTF-8', () => {
    expect(readPayload(token({ name: 'Ólga', exp: 7 }))).toEqual({ name: 'Ólga', exp: 7 });
    for (const broken of ['', 'a', 'a.b.c', `a.${Buffer.from('7').toString('base64url')}.c`])
      expect(readPayload(broken)).toEqual({});
  });
});
