/** Describes the answer to a request for a file, or for a range of it (RFC 9110 §14). The body is from `start` to `end`. */
export function describeRange(
  { range: asked, 'if-range': condition }: { range?: string | undefined; 'if-range'?: string | undefined },
  etag: string,
  size: number,
) {
  const range = condition === undefined || condition === etag ? parseRange(asked, size) : undefined;
  const headers = { ETag: etag, 'Accept-Ranges': 'bytes' };
  if (range === null)
    return { status: 416, headers: { ...headers, 'Content-Range': `bytes */${size}` }, start: 0, end: -1 };
  const { start, end } = range ?? { start: 0, end: size - 1 };
  const part = range && { 'Content-Range': `bytes ${start}-${end}/${size}` };
  return { status: part ? 206 : 200, headers: { ...headers, 'Content-Length': end - start + 1, ...part }, start, end };
}

/**
 * Parses a `Range` header with a single range of bytes, both ends included (RFC 9110 §14).
 * @returns undefined where the whole file is to be sent, null for a range beyond `size`
 */
function parseRange(header: string | undefined, size: number): { start: number; end: number } | null | undefined {
  const [whole, first, last] = /^bytes=(\d*)-(\d*)$/.exec(header ?? '') ?? [];
  if (whole === undefined || (first === '' && last === '') || (last !== '' && Number(first) > Number(last)))
    return undefined;
  const start = first === '' ? Math.max(0, size - Number(last)) : Number(first);
  const end = first === '' || last === '' ? size - 1 : Math.min(Number(last), size - 1);
  return start < size ? { start, end } : null;
}
