/** Releases and the days of their last security update. */
const lastUpdates: ReadonlyMap<string, string> = new Map([
  ['Node.js 20', '2026-04-30'],
  ['Node.js 22', '2027-04-30'],
  ['Node.js 24', '2028-04-30'],
  ['MongoDB 6.0', '2025-07-31'],
  ['MongoDB 7.0', '2027-08-31'],
  ['MongoDB 8.0', '2029-10-31'],
]);

/** Returns the day since when a release such as `Node.js 20` gets no security updates, if that is in the past. */
export function findEndOfLife(release: string, now: number): string | undefined {
  const day = lastUpdates.get(release);
  return day !== undefined && Date.parse(day) < now ? day : undefined;
}
