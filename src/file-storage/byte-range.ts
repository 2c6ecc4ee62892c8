/**
 * The one range of bytes that a `Range` header asks for, both ends included (RFC 9110 §14).
 * @returns undefined where all `size` bytes are meant, null where it is beyond them
 */
export function rangeOf(header: string | undefined, size: number): { start: number; end: number } | null | undefined {
  const [whole, first, last] = /^bytes=(\d*)-(\d*)$/.exec(header ?? '') ?? [];
  if (whole === undefined || (first === '' && last === '') || (last !== '' && Number(first) > Number(last)))
    return undefined;
  const start = first === '' ? Math.max(0, size - Number(last)) : Number(first);
  const end = first === '' || last === '' ? size - 1 : Math.min(Number(last), size - 1);
  return start < size ? { start, end } : null;
}
