const pattern =
  /^(\d{4})-(\d\d)-(\d\d)[Tt ]([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60)(?:\.(\d{1,9}))?(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))$/;

/** Parses a time with an offset, `2026-11-27T09:00:00.5+01:00`. @returns epoch seconds; undefined if it is none (RFC 3339) */
export function parseTime(text: string): number | undefined {
  const match = pattern.exec(text);
  if (match === null) return undefined;
  const [year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0] = match.slice(1, 7).map(Number);
  const midnight = new Date(0);
  // unlike Date.UTC this takes years before 100 as they are
  midnight.setUTCFullYear(year, month - 1, day);
  if (midnight.getUTCMonth() !== month - 1 || midnight.getUTCDate() !== day) return undefined;
  const offset_s = Number(`${match[8] ?? '+'}1`) * (Number(match[9] ?? 0) * 3600 + Number(match[10] ?? 0) * 60);
  const seconds = midnight.getTime() / 1000 + hour * 3600 + minute * 60 + second - offset_s;
  // a leap second ends a day of UTC
  if (second === 60 && seconds % 86_400 !== 0) return undefined;
  // in one decimal number, which rounds once
  return seconds < 0 ? seconds : Number(`${seconds}.${match[7] ?? 0}`);
}
