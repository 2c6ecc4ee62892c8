import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { InvalidArgumentError } from 'commander';
import type { Backend } from '../../tests/support/balancer.js';
import { findFreePort, type ServiceProcess, startServiceProcess, waitUntilOk } from '../support/service-process.js';

/** Longer than the service takes for any request, also on a busy machine. */
const answer_timeout_ms = 10_000;

/** Starts the built service on a database that runs already. @param env further variables, such as MQTT_PORT */
export function startInstance(uri: string, key: string, env: NodeJS.ProcessEnv = {}): Promise<ServiceProcess> {
  const settings = {
    HOST: '127.0.0.1',
    PORT: '0',
    MQTT_PORT: 'off',
    LOG_FORMAT: 'off',
    LOG_LEVEL: 'warn',
    BASE_PATH: '',
  };
  const secrets = { MONGODB_URI: uri, SECRET_KEY: key, BOOTSTRAP_API_KEY: key };
  return startServiceProcess({ env: { ...process.env, ...settings, ...secrets, WORKERS: '1', ...env } });
}

/** Finds free ports for an instance. */
export async function findBackend(): Promise<Backend> {
  return { url: `http://127.0.0.1:${await findFreePort()}`, mqtt_port: await findFreePort() };
}

/** Waits until `/readyz` answers 200. @throws Error with the output of the instance if it does not */
export function waitUntilReady(instance: ServiceProcess): Promise<void> {
  return waitUntilOk(instance, () => `${instance.url}/readyz`);
}

/** Kills the embedded database of a data folder, unless it is being restarted after the last time. */
export async function killDatabase(folder: string): Promise<void> {
  const pid = Number(await readFile(join(folder, 'db', 'mongod.lock'), 'utf8').catch(() => '0'));
  try {
    if (pid > 0) process.kill(pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** Sends a request. @throws Error without an answer within 10 s */
export function send(url: string, key: string, method: string, path: string, body?: object): Promise<Response> {
  return fetch(url + path, {
    method,
    headers: { 'service.apikey': key, 'content-type': 'application/json' },
    signal: AbortSignal.timeout(answer_timeout_ms),
    ...(body && { body: JSON.stringify(body) }),
  });
}

/** Sends a request. @returns the answer @throws Error unless it is a success */
export async function sendOk(url: string, key: string, method: string, path: string, body?: object): Promise<Response> {
  const response = await send(url, key, method, path, body);
  if (response.status !== 200) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
  return response;
}

/** Creates a project, a service and a group. @returns the identifier of the group @throws Error as sendOk */
export async function createGroup(url: string, key: string): Promise<string> {
  await sendOk(url, key, 'POST', '/projects/', { name: 'p', id_customer: 'c' });
  await sendOk(url, key, 'POST', '/services/', { name: 's', id_project: 'p@demo' });
  await sendOk(url, key, 'POST', '/groups/', { name: 'g', id_service: 's@demo' });
  return 'g@demo';
}

/** Parses a count of the command line. @throws InvalidArgumentError */
export function parseCount(text: string): number {
  if (!/^[1-9][0-9]{0,8}$/.test(text)) throw new InvalidArgumentError('must be a whole number of at least 1.');
  return Number(text);
}
