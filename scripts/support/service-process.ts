import { execFileSync, spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { inspect } from 'node:util';

/** A child process whose output is recorded. It is killed when this process exits. */
export interface RecordedProcess {
  pid: number;
  /** Standard output so far; with `logFile`, both streams. */
  out(): string;
  /** Standard error so far; with `logFile`, both streams. */
  err(): string;
  /** Resolves when the process has ended and all its output was read, to its exit code or the signal that ended it. */
  ended: Promise<number | NodeJS.Signals>;
  hasExited(): boolean;
  kill(signal: NodeJS.Signals, target?: 'process' | 'group'): void;
  /** Sends a signal, unless the process has exited, and waits for its exit. */
  stop(signal?: NodeJS.Signals): Promise<void>;
}

/** A built service, or a server that reports its address the same way, that is ready. */
export interface ServiceProcess extends RecordedProcess {
  url: string;
}

interface ProcessOptions {
  env: NodeJS.ProcessEnv;
  cwd?: string;
  /** Starts the process in a process group of its own. */
  ownGroup?: boolean;
  /** Receives the output instead of memory: recording an access log would cost the caller CPU. */
  logFile?: string;
}

interface ServiceOptions extends ProcessOptions {
  /** JavaScript file to run; default: the service. */
  entry?: string;
  /** Path that answers 200 when the server is ready. */
  readyPath?: string;
  timeout_ms?: number;
}

const poll_interval_ms = 10;
/** Far more than anything takes, even on a busy machine. */
const default_limit_ms = 120_000;
const running = new Set<RecordedProcess>();

/** Starts a program without waiting for anything. @throws Error if it cannot be started */
export function startProcess(command: string, args: readonly string[], options: ProcessOptions): RecordedProcess {
  const { env, cwd, ownGroup = false, logFile } = options;
  const log = logFile === undefined ? undefined : openSync(logFile, 'w');
  const output = log ?? 'pipe';
  const child = spawn(command, args, { env, cwd, detached: ownGroup, stdio: ['ignore', output, output] });
  if (log !== undefined) closeSync(log);
  // reported below, by the missing process id
  child.on('error', () => undefined);
  const { pid } = child;
  if (pid === undefined) throw new Error(`${command} cannot be started`);
  const texts = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr'] as const)
    child[name]?.setEncoding('utf8').on('data', (text: string) => {
      texts[name] += text;
    });
  const read = (name: keyof typeof texts) => (logFile === undefined ? texts[name] : readFileSync(logFile, 'utf8'));
  const exited = once(child, 'exit');
  const hasExited = () => child.exitCode !== null || child.signalCode !== null;
  const recorded: RecordedProcess = {
    pid,
    out: () => read('stdout'),
    err: () => read('stderr'),
    ended: once(child, 'close').then(([code, signal]) => code ?? signal),
    hasExited,
    kill: (signal, target = 'process') => void process.kill(target === 'group' ? -pid : pid, signal),
    async stop(signal = 'SIGTERM') {
      if (!hasExited()) child.kill(signal);
      await exited;
    },
  };
  if (running.size === 0) process.once('exit', killAll);
  running.add(recorded);
  void exited.then(() => {
    running.delete(recorded);
    if (running.size === 0) process.removeListener('exit', killAll);
  });
  return recorded;
}

function killAll(): void {
  for (const child of running) if (!child.hasExited()) child.kill('SIGKILL');
}

/**
 * Starts a server in a process of its own, with the flags of `npm start` in its checkout, and waits until it is ready.
 * @throws Error with its output if it fails to
 */
export async function startServiceProcess(options: ServiceOptions): Promise<ServiceProcess> {
  const { entry = 'dist/src/main.js', readyPath = '/readyz', timeout_ms, cwd = '.' } = options;
  const { start } = JSON.parse(readFileSync(join(cwd, 'package.json'), 'utf8')).scripts;
  const started = startProcess(process.execPath, [...(start.match(/--\S+/g) ?? []), entry], options);
  const findUrl = () => /listening on (\S+)/.exec(started.out())?.[1];
  try {
    await waitUntilOk(started, () => (findUrl() ?? entry) + readyPath, timeout_ms);
    return { ...started, url: findUrl() ?? '' };
  } catch (error) {
    await started.stop('SIGKILL');
    throw error;
  }
}

/** Waits until an address answers 200. @throws Error with the output of the process if it has ended, and on timeout */
export async function waitUntilOk(
  { hasExited, out, err }: RecordedProcess,
  findAddress: () => string,
  timeout_ms?: number,
): Promise<void> {
  const isOk = async () => hasExited() || (await fetch(findAddress())).status === 200;
  await waitUntil(isOk, timeout_ms).catch((error: Error) => {
    throw new Error(`${findAddress()}: ${error.message}\n${out()}${err()}`);
  });
  if (hasExited()) throw new Error(`the process of ${findAddress()} has ended:\n${out()}${err()}`);
}

/**
 * Waits until `condition` is true; an exception counts as false.
 * @throws Error on timeout, with the source of the condition
 */
export async function waitUntil(condition: () => boolean | Promise<boolean>, timeout_ms?: number): Promise<void> {
  await waitFor(condition, Boolean, timeout_ms);
}

/**
 * Reads until a value satisfies `isDone`; an exception is read again. @returns that value
 * @throws Error on timeout, which names what was read and the last value or failure
 */
export async function waitFor<Value>(
  read: () => Value | Promise<Value>,
  isDone: (value: Value) => boolean,
  timeout_ms = default_limit_ms,
): Promise<Value> {
  const begun = performance.now();
  for (;;) {
    const looked_at = performance.now();
    let last: unknown;
    try {
      const value = await read();
      if (isDone(value)) return value;
      last = value;
    } catch (error) {
      last = error;
    }
    const now = performance.now();
    if (now - begun > timeout_ms) {
      const [condition, value] = [isDone === Boolean ? read : isDone, inspect(last, { depth: 5 })];
      throw new Error(`not within ${timeout_ms} ms: ${condition}, but the last value is ${value}`);
    }
    // what is waited for needs the processor more
    await sleep(Math.max(poll_interval_ms, 4 * (now - looked_at)));
  }
}
/** Below the ports that systems give to outgoing connections: no client takes one before it is used, or used again. */
const [min_port, max_port] = [12_000, 30_000];

/** Finds a TCP port of the loopback address that nothing listens on. */
export async function findFreePort(): Promise<number> {
  for (;;) {
    const port = randomInt(min_port, max_port);
    const server = createServer().listen(port, '127.0.0.1');
    try {
      await once(server, 'listening');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EADDRINUSE') continue;
      throw error;
    }
    await once(server.close(), 'close');
    return port;
  }
}

/** Finds a program on PATH or in the system directories of root's PATH. @returns its path */
export function findProgram(program: string): string | undefined {
  const PATH = `${process.env.PATH}:/usr/sbin:/usr/local/sbin`;
  try {
    return execFileSync('sh', ['-c', `command -v ${program}`], {
      encoding: 'utf8',
      env: { ...process.env, PATH },
    }).trim();
  } catch {
    return undefined;
  }
}
