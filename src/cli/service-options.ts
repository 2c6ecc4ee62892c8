import { type Command, Option } from 'commander';
import { formatOrigin, formatUrlHost, readConfig } from '../config.js';
import { RetryableError } from './stream-client.js';

export interface ServiceOptions {
  url?: string;
  key?: string;
}

type Environment = Readonly<Record<string, string | undefined>>;

const addressHint = '--url, PUBLIC_URL, or HOST and PORT';
const keyHint =
  'no API key: use --key or API_KEY. The service prints one at its first start; ' +
  '`npm run --silent keys -- create --account demo --user demo --scope write` creates another.';

/** Adds `--url` and `--key`. */
export function withServiceOptions(program: Command, scope: string): Command {
  return program
    .option('--url <url>', 'base URL of the service (default: PUBLIC_URL, or HOST and PORT, with BASE_PATH)')
    .option('--key <key>', `API key of scope ${scope} (default: API_KEY)`);
}

/** Creates the option `--mqtt`. */
export function createMqttOption(): Option {
  return new Option('--mqtt <url>', 'URL of the broker (default: mqtt://HOST:MQTT_PORT)');
}

/** Returns the address and the key to use. @throws StartError for a bad variable; Error without a key */
export function resolveService({ url, key }: ServiceOptions, env: Environment): { url: string; key: string } {
  const usedKey = key || env.API_KEY;
  if (!usedKey) throw new Error(keyHint);
  if (url !== undefined) return { url, key: usedKey };
  const { public_url, base_path, ...config } = readAddress(env);
  const { host, port } = config;
  const isPublic = Boolean(env.PUBLIC_URL);
  if (!isPublic && port === 0) throw new Error(`PORT 0 names no port: use --url`);
  return {
    url: (isPublic ? public_url : formatOrigin({ ...config, host: toTargetHost(host) }, port)) + base_path,
    key: usedKey,
  };
}

/** Returns the URL of the broker. @throws StartError for a bad variable; Error if there is none */
export function resolveBroker(mqtt: string | undefined, env: Environment): string {
  if (mqtt !== undefined) return mqtt;
  const { host, mqtt_port } = readAddress(env);
  if (!mqtt_port) throw new Error(`MQTT_PORT ${env.MQTT_PORT} names no port: use --mqtt, or --http-share 1`);
  return `mqtt://${formatUrlHost(toTargetHost(host))}:${mqtt_port}`;
}

/** Returns the message of an error; where the service is unreachable, with the options that name another address. */
export function describeFailure(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  const isUnreachable = error instanceof RetryableError && !error.hasResponse;
  return isUnreachable ? `${message}. Does the service run there? Another address: ${addressHint}` : message;
}

/** MONGODB_URI would require SECRET_KEY, and neither matters to a client. */
function readAddress(env: Environment) {
  return readConfig({ ...env, MONGODB_URI: undefined });
}

/** An address to listen on any interface is none to connect to. */
function toTargetHost(host: string): string {
  if (host === '0.0.0.0') return '127.0.0.1';
  return host === '::' ? '::1' : host;
}
