import { spawn } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe } from '@jest/globals';
import { findFreePort } from '../process.js';

export type ServerName = 'apache2' | 'rclone' | 'rclone s3' | 'wsgidav' | 'versitygw';

/** A kind of server, and why it cannot be started on this machine; undefined where it can. */
export interface Choice<Kind extends string> {
  kind: Kind;
  missing: string | undefined;
}

/** A program, and the folder of its modules or packages. */
export interface Program {
  path: string;
  folder?: string;
}

/** Bounds the probe of a port that an unrelated process may listen on. */
export const answer_timeout_ms = 60_000;
const start_timeout_ms = 60_000;
const stop_timeout_ms = 5_000;

/** The result of the global set-up for `name`. */
export function lookUp(name: ServerName): Program | { missing: string } {
  const found: Partial<Record<ServerName, Program | { missing: string }>> = JSON.parse(
    process.env.TEST_STORAGE_SERVERS ?? '{}',
  );
  return found[name] ?? { missing: 'not looked for' };
}

/** @throws Error if it is not on this machine */
export function programOf(name: ServerName): Program {
  const found = lookUp(name);
  if ('missing' in found) throw new Error(`${name}: ${found.missing}`);
  return found;
}

/** Turns kinds and their server names into choices. */
export function choicesOf<Kind extends string>(names: Record<Kind, ServerName>): Choice<Kind>[] {
  return (Object.entries(names) as [Kind, ServerName][]).map(([kind, name]) => {
    const found = lookUp(name);
    return { kind, missing: 'missing' in found ? found.missing : undefined };
  });
}

/** The suite once for each kind of server; skipped, under its name and the reason, where it cannot be started. */
export function describeWith<Kind extends string>(choices: readonly Choice<Kind>[], suite: (kind: Kind) => void): void {
  for (const { kind, missing } of choices) {
    if (missing === undefined) describe(kind, () => suite(kind));
    else describe.skip(`${kind} (not installed: ${missing})`, () => suite(kind));
  }
}

/** The command that starts a server, and the probe that shows when it is up. */
export interface Plan {
  command: string;
  args: string[];
  env?: NodeJS.ProcessEnv;
  /** The user to run it as, if not the one who runs the tests. */
  uid?: number | undefined;
  /** Sends a request that only this server can answer; an error counts as not up yet. */
  isUp(): Promise<boolean>;
}

/** Starts a server on a free port of 127.0.0.1; retries, as another process may take the port first. */
export async function startServer(
  plan: (port: number) => Plan | Promise<Plan>,
): Promise<{ port: number; stop(): Promise<void> }> {
  const begun = performance.now();
  for (let attempt = 1; ; attempt += 1) {
    const port = await findFreePort();
    try {
      return { port, stop: await start(await plan(port)) };
    } catch (error) {
      if (attempt === 3 || performance.now() - begun > start_timeout_ms) throw error;
    }
  }
}

async function start({ command, args, env, uid, isUp }: Plan): Promise<() => Promise<void>> {
  const owner = uid === undefined ? {} : { uid, gid: uid };
  // not all of the environment: these programs take settings from it
  const { PATH, HOME, TMPDIR } = process.env;
  const child = spawn(command, args, {
    env: { PATH, HOME, TMPDIR, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    ...owner,
  });
  let log = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => {
      log = (log + text).slice(-5_000);
    });
  let failure: string | undefined;
  const closed = new Promise<void>((done) => {
    child.once('error', (error) => {
      failure = error.message;
      done();
    });
    child.once('close', (code, signal) => {
      failure ??= `ended with ${code ?? signal}`;
      done();
    });
  });
  const stop = async () => {
    child.kill('SIGTERM');
    const patience = new AbortController();
    const late = sleep(stop_timeout_ms, undefined, { signal: patience.signal }).then(
      () => child.kill('SIGKILL'),
      () => undefined,
    );
    await Promise.race([closed, late]);
    await closed;
    patience.abort();
  };
  const end = performance.now() + start_timeout_ms;
  while (!(await isUp().catch(() => false))) {
    if (failure === undefined && performance.now() > end) failure = `not up within ${start_timeout_ms} ms`;
    if (failure !== undefined) {
      const why = failure;
      await stop();
      throw new Error(`${command} ${why}: ${log.trim()}`);
    }
    await Promise.race([sleep(20), closed]);
  }
  return stop;
}
