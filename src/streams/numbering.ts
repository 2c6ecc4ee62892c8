import { randomInt } from 'node:crypto';
import mongoose from 'mongoose';
import { number_bits } from '../resources/stream-key.js';

const { Long } = mongoose.mongo;
type Long = InstanceType<typeof Long>;

const numbers_per_ms = 2 ** number_bits;
/** Numbers of a millisecond begin below this, so that those of several processes seldom collide. */
const max_start = numbers_per_ms / 4;
const last_ms_of_second = 999;

/** Returns the number of the next stream received in a second (epoch seconds). */
export type NextNumber = (received: number) => Long;

/**
 * Creates numbers in the order of the calls: milliseconds of the time of receipt, then a count. What is numbered when its
 * second has passed gets the last millisecond of that second. @param clock epoch milliseconds
 */
export function createNumbering(clock: () => number): NextNumber {
  let last_ms = 0;
  let count = 0;
  let late_count = randomInt(numbers_per_ms);
  return (received) => {
    const ms = Math.floor(clock());
    const ms_of_second = ms - received * 1000;
    if (ms_of_second < 0 || ms_of_second >= last_ms_of_second) {
      late_count = (late_count + 1) % numbers_per_ms;
      return buildNumber(received * 1000 + last_ms_of_second, late_count);
    }
    count = ms > last_ms ? randomInt(max_start) : count + 1;
    last_ms = Math.max(last_ms, ms);
    return buildNumber(ms, count);
  };
}

function buildNumber(ms: number, count: number): Long {
  return Long.fromNumber(ms).shiftLeft(number_bits).add(count);
}
