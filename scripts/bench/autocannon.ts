import autocannon from 'autocannon';
import { type Load, type LoadGenerator, type LoadResult, splitBody, summarizeLatencies } from './load.js';

/** Sends HTTP requests, in this process. */
export const httpGenerator: LoadGenerator = { name: 'autocannon', run };

async function run({ url, requests, connections, seconds }: Load): Promise<LoadResult> {
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
  const running = autocannon({ url, connections, duration: seconds, timeout: 10, requests: [{ setupRequest }] });
  const latencies_ms: number[] = [];
  running.on('response', (_client, _status, _bytes, milliseconds) => latencies_ms.push(milliseconds));
  const { duration, errors, non2xx } = await running;
  return { ...summarizeLatencies(latencies_ms, duration), failed: errors + non2xx };
}
