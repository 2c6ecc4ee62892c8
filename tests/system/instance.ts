import { InvalidArgumentError } from 'commander';
import { type ServiceProcess, startServiceProcess, waitUntil } from '../../scripts/support/service-process.js';

const recovery_timeout_ms = 60_000;

/** Starts the built service on a database that runs already. */
export function startInstance(uri: string, key: string): Promise<ServiceProcess> {
  const settings = {
    HOST: '127.0.0.1',
    PORT: '0',
    MQTT_PORT: 'off',
    LOG_FORMAT: 'off',
    LOG_LEVEL: 'fatal',
    BASE_PATH: '',
  };
  const secrets = { MONGODB_URI: uri, SECRET_KEY: key, BOOTSTRAP_API_KEY: key };
  return startServiceProcess({ env: { ...process.env, ...settings, ...secrets, WORKERS: '1' } });
}

/** Waits until `/readyz` answers 200. */
export function waitUntilReady({ url }: ServiceProcess): Promise<void> {
  return waitUntil(async () => (await fetch(`${url}/readyz`)).status === 200, recovery_timeout_ms);
}

/** Parses a count of the command line. @throws InvalidArgumentError */
export function parseCount(text: string): number {
  if (!/^[1-9][0-9]{0,8}$/.test(text)) throw new InvalidArgumentError('must be a whole number of at least 1.');
  return Number(text);
}
