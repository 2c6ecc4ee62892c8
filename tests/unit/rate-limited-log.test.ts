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
