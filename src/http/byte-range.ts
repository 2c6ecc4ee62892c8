/**
 * Parses a `Range` header with a single range of bytes, both ends included (RFC 9110 §14).
 * @returns undefined where the whole file is to be sent, null for a range beyond `size`
 */
export function parseRange(
  header: string | undefined,
  size: number,
): { start: number; end: number } | null | undefined {
  const [whole, first, last] = /^bytes=(\d*)-(\d*)$/.exec(header ?? '') ?? [];
  if (whole === undefined || (first === '' && last === '') || (last !== '' && Number(first) > Number(last)))
    return undefined;
  const start = first === '' ? Math.max(0, size - Number(last)) : Number(first);
  const end = first === '' || last === '' ? size - 1 : Math.min(Number(last), size - 1);
  return start < size ? { start, end } : null;
}
