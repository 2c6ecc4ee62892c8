/** Pauses before the second and every later attempt, in seconds (reference/webhooks.md#retries). */
const pauses_s = [5, 30, 5 * 60, 30 * 60, 2 * 3600, 8 * 3600, 24 * 3600];
/** Share by which a pause is longer or shorter, so that retries of many events spread. */
const spread = 0.1;

/**
 * Finds when an event is sent again after its attempt number `attempt` has failed at `now` (epoch seconds).
 * @param random from 0 to 1 @returns undefined after the last attempt
 */
export function scheduleAfter(attempt: number, now: number, random: number): number | undefined {
  const pause_s = pauses_s[attempt - 1];
  if (pause_s === undefined) return undefined;
  const factor = 1 - spread + 2 * spread * random;
  return Math.round((now + pause_s * factor) * 1000) / 1000;
}
