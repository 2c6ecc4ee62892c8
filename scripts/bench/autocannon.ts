import autocannon from 'autocannon';
import { type Load, type LoadResult, splitBody, summarizeLatencies } from './load.js';

/** Runs one measurement with autocannon, in this process. */
export async function runAutocannon({ url, requests, connections, seconds }: Load): Promise<LoadResult> {
  const { method, paths, body } = requests;
  // without it, requests made by setupRequest have the Host `undefined:undefined`
  const headers = { Host: new URL(url).host, ...requests.headers };
  const parts = body === undefined ? [] : splitBody(body);
  let sentCount = 0;
  const setupRequest = () => {
    const n = sentCount++;
    const path = paths[n % paths.length] ?? '/';
    if (body === undefined) return { method, headers, path };
    const values: Record<string, number> = { n, round: Math.floor(n / paths.length) };
    const text = parts.map((part, index) => (index % 2 === 1 ? values[part] : part)).join('');
    return { method, headers, path, body: text };
  };
  const run = autocannon({ url, connections, duration: seconds, timeout: 10, requests: [{ setupRequest }] });
  const latencies_ms: number[] = [];
  run.on('response', (_client, _status, _bytes, milliseconds) => latencies_ms.push(milliseconds));
  const { duration, errors, non2xx } = await run;
  return { ...summarizeLatencies(latencies_ms, duration), failed: errors + non2xx };
}
