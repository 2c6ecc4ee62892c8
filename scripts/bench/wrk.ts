import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type Load, type LoadResult, type Requests, splitBody } from './load.js';

const run = promisify(execFile);

/** Runs one measurement with wrk, whose script is written to `folder`. @throws Error if wrk fails */
export async function runWrk(wrk: string, folder: string, load: Load): Promise<LoadResult> {
  const script = join(folder, 'load.lua');
  await writeFile(script, createScript(load.requests));
  const options = ['-t1', `-c${load.connections}`, `-d${load.seconds}s`, '--timeout', '10s', '-s', script];
  const { stdout } = await run(wrk, [...options, load.url]);
  const result = JSON.parse(stdout.slice(stdout.lastIndexOf('{')));
  return { ...result, per_second: result.requests / result.seconds };
}

/** Quotes text for Lua, whose strings equal those of JSON except for Unicode escapes. */
const quote = (text: string) => JSON.stringify(text);

function createScript({ method, headers, paths, body }: Requests): string {
  const fields = Object.entries(headers).map(([name, value]) => `wrk.headers[${quote(name)}] = ${quote(value)}`);
  const parts = splitBody(body ?? '').map((part, index) => (index % 2 === 1 ? part : quote(part)));
  const formatted = body === undefined ? `wrk.format("GET", path)` : 'path';
  const next =
    body === undefined
      ? 'return targets[sent % #targets + 1]'
      : `local n = sent
  local round = math.floor(n / #targets)
  return wrk.format(${quote(method)}, targets[n % #targets + 1], nil, ${parts.join(' .. ')})`;
  return `
${fields.join('\n')}
local paths = {
${paths.map((path) => `  ${quote(path)},`).join('\n')}
}
local targets = {}
local sent = -2

function init()
  for i, path in ipairs(paths) do targets[i] = ${formatted} end
end

function request()
  sent = sent + 1
  -- wrk creates the first request only to inspect it and does not send it
  if sent < 0 then return wrk.format("GET", "/readyz") end
  ${next}
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{"requests":%d,"seconds":%.6f,"p50_ms":%.3f,"p99_ms":%.3f,"failed":%d}',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1000, latency:percentile(99) / 1000,
    errors.status + errors.connect + errors.read + errors.write + errors.timeout))
end
`;
}
