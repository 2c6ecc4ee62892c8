import autocannon from 'autocannon';
import { type Load, type Measured, piecesOf } from './load.js';

/** One measurement by autocannon, in this process. */
export async function autocannonLoad({ url, requests, connections, seconds }: Load): Promise<Measured> {
  const { method, headers, paths, body } = requests;
  const pieces = body === undefined ? [] : piecesOf(body);
  let sent = 0;
  const setupRequest = () => {
    const n = sent++;
    const path = paths[n % paths.length] ?? '/';
    if (body === undefined) return { method, headers, path };
    const marks: Record<string, number> = { n, round: Math.floor(n / paths.length) };
    const text = pieces.map((piece, index) => (index % 2 === 1 ? marks[piece] : piece)).join('');
    return { method, headers, path, body: text };
  };
  const running = autocannon({ url, connections, duration: seconds, timeout: 10, requests: [{ setupRequest }] });
  const times_ms: number[] = [];
  running.on('response', (_client, _status, _bytes, milliseconds) => times_ms.push(milliseconds));
  const { duration, errors, non2xx } = await running;
  times_ms.sort((a, b) => a - b);
  const at = (part: number) => times_ms[Math.floor(times_ms.length * part)] ?? Number.NaN;
  return {
    requests: times_ms.length,
    per_second: times_ms.length / duration,
    p50_ms: at(0.5),
    p99_ms: at(0.99),
    failed: errors + non2xx,
  };
}
