import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, open, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

/** One of the two that are compared, in a process of its own. */
export interface Server {
  url: string;
  pid: number;
  stop(): Promise<void>;
}

interface Options {
  /** Where its output goes. */
  folder: string;
  uri: string;
  key: string;
  /** The built checkout to run; default: the current directory. */
  checkout?: string;
}

const start_limit_ms = 120_000;

/** The built service with its default settings, on ports that are free. */
export function startService({ folder, uri, key, checkout = '.' }: Options): Promise<Server> {
  const settings = {
    MONGODB_URI: uri,
    PORT: '0',
    MQTT_PORT: '0',
    SECRET_KEY: 'only-for-measurements',
    BOOTSTRAP_API_KEY: key,
  };
  return start('service', 'dist/src/main.js', folder, settings, '/readyz', checkout);
}

/** What Node and the driver can do at best: `floor.ts`. */
export function startFloor({ folder, uri }: Options): Promise<Server> {
  return start('floor', 'dist/scripts/bench/baseline.js', folder, { MONGODB_URI: uri }, '/');
}

/** @throws Error with what it has said if it ends, or is not ready within two minutes */
async function start(
  name: string,
  script: string,
  folder: string,
  settings: object,
  ready: string,
  cwd = '.',
): Promise<Server> {
  const { PATH, HOME } = process.env;
  const log = join(await mkdtemp(join(folder, `${name}-`)), 'output.log');
  const output = await open(log, 'w');
  const child = spawn(process.execPath, [script], {
    cwd,
    env: { PATH, HOME, ...settings },
    stdio: ['ignore', output.fd, output.fd],
  });
  await output.close();
  const ended = once(child, 'close');
  const kill = () => child.kill('SIGKILL');
  process.once('exit', kill);
  const stop = async () => {
    child.kill('SIGTERM');
    await ended;
    process.removeListener('exit', kill);
  };
  const end = performance.now() + start_limit_ms;
  for (;;) {
    const said = await readFile(log, 'utf8');
    const url = /listening on (\S+)/.exec(said)?.[1];
    const status = url && (await fetch(url + ready).catch(() => undefined))?.status;
    if (url && status === 200) return { url, pid: child.pid ?? 0, stop };
    if (child.exitCode !== null || performance.now() > end) {
      await stop();
      throw new Error(`${name} does not start: ${said}`);
    }
    await sleep(50);
  }
}
