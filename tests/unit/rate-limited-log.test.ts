import { expect, it } from '@jest/globals';
import { createRateLimitedLog } from '../../src/lib/rate-limited-log.js';

interface Line {
  message: string;
  count: number;
}

function createRecorder() {
  const lines: Line[] = [];
  const details: string[] = [];
  const write = (fields: object, message: string) => void lines.push({ message, count: (fields as Line).count });
  const debug = (_fields: object, message: string) => void details.push(message);
  return { lines, details, log: { warn: write, error: write, debug } };
}

it('writes a line per minute and cause, with the number of failures since the line before', () => {
  const { lines, log, details } = createRecorder();
  let now = 1000;
  const logFailure = createRateLimitedLog(log, 'error', () => now);
  const stepDown = Object.assign(new Error('not primary'), { code: 10107 });
  for (let time = 0; time < 5; time++) {
    // messages of the driver name the connection
    logFailure('BD error', { err: new TypeError(`connection ${time} closed`) });
    logFailure('BD error', { err: stepDown });
    logFailure('overloaded', {});
  }
  const once = [
    { message: 'BD error', count: 1 },
    { message: 'BD error', count: 1 },
    { message: 'overloaded', count: 1 },
  ];
  expect(lines).toEqual(once);
  expect(details).toEqual(Array.from({ length: 4 }, () => ['BD error', 'BD error', 'overloaded']).flat());
  now += 60_000;
  logFailure('BD error', { err: stepDown });
  expect(lines).toEqual([...once, { message: 'BD error', count: 5 }]);
});

it('writes a line for each of 1,000 names a minute, and one for all others, whatever names clients choose', () => {
  const { lines, log } = createRecorder();
  let now = 1000;
  const warn = createRateLimitedLog(log, 'warn', () => now);
  const refuse = (from: number, to: number) => {
    for (let n = from; n < to; n++) warn('refused', {}, `device ${n}`);
    return lines.splice(0).map(({ count }) => count);
  };
  expect(refuse(0, 3)).toEqual([1, 1, 1]);
  expect(refuse(0, 3)).toEqual([]);
  expect(refuse(3, 1000).length).toBe(997);
  expect(refuse(1000, 6000)).toEqual([1]);
  now += 60_000;
  // the oldest names make room; the line of the others counts those of the minute before
  expect(refuse(6000, 8000)).toEqual([...Array.from({ length: 999 }, () => 1), 5000]);
});
