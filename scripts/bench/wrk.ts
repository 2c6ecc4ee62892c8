import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type Load, type Measured, piecesOf, type Requests } from './load.js';

const run = promisify(execFile);

/** One measurement by wrk, with a script in `folder`. @throws Error if wrk does */
export async function wrkLoad(wrk: string, folder: string, load: Load): Promise<Measured> {
  const script = join(folder, 'load.lua');
  await writeFile(script, scriptOf(load.requests));
  const options = ['-t1', `-c${load.connections}`, `-d${load.seconds}s`, '--timeout', '10s', '-s', script];
  const { stdout } = await run(wrk, [...options, load.url]);
  const result = JSON.parse(stdout.slice(stdout.lastIndexOf('{')));
  return { ...result, per_second: result.requests / result.seconds };
}

/** JSON strings without escapes of Unicode are Lua strings. */
const quoted = (text: string) => JSON.stringify(text);

function scriptOf({ method, headers, paths, body }: Requests): string {
  const fields = Object.entries(headers).map(([name, value]) => `wrk.headers[${quoted(name)}] = ${quoted(value)}`);
  const pieces = piecesOf(body ?? '').map((piece, index) => (index % 2 === 1 ? piece : quoted(piece)));
  const formatted = body === undefined ? `wrk.format("GET", path)` : 'path';
  const next =
    body === undefined
      ? 'return targets[sent % #targets + 1]'
      : `local n = sent
  local round = math.floor(n / #targets)
  return wrk.format(${quoted(method)}, targets[n % #targets + 1], nil, ${pieces.join(' .. ')})`;
  return `
${fields.join('\n')}
local paths = {
${paths.map((path) => `  ${quoted(path)},`).join('\n')}
}
local targets = {}
local sent = -2

function init()
  for i, path in ipairs(paths) do targets[i] = ${formatted} end
end

function request()
  sent = sent + 1
  -- the first is made to see what wrk has to expect, and not sent
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
