import ipaddr from 'ipaddr.js';
import { z } from 'zod';
import { StartError } from './errors.js';
import { decodePercent } from './percent-decoding.js';

/** An external broker and the service's credentials there. */
export interface BridgeConfig {
  /** Without credentials. */
  url: string;
  username: string;
  password: string;
}

/** The configuration from the environment (reference/configuration.md#variables). */
export interface Config {
  host: string;
  port: number;
  base_path: string;
  mongodb_uri: string | undefined;
  data_dir: string;
  mqtt_port: number | undefined;
  mqtt_auth_secret: string | undefined;
  mqtt_bridges: readonly BridgeConfig[];
  stream_retention_days: number | undefined;
  event_retention_days: number | undefined;
  /** Another worker process runs the broker. */
  mqtt_in_other_worker: boolean;
  workers: number;
  shutdown_delay_s: number;
  secret_key: string | undefined;
  bootstrap_api_key: string | undefined;
  api_key_headers: readonly string[];
  public_url: string;
  filestore_local_root: string | undefined;
  /** CIDR notation. */
  filestore_allow_nets: readonly string[];
  /** CIDR notation. */
  webhook_allow_nets: readonly string[];
  cors_origins: readonly string[];
  console: 'on' | 'off';
  console_tiles_url: string | undefined;
  rate_limit_per_minute: number | undefined;
  log_level: 'fatal' | 'error' | 'warn' | 'info' | 'debug' | 'trace' | 'silent';
  log_format: 'combined' | 'common' | 'dev' | 'short' | 'tiny' | 'json' | 'off';
}

function integerBetween(min: number, max: number) {
  const digits = new RegExp(`^\\d{1,${String(max).length}}$`);
  return z.string().regex(digits).transform(Number).pipe(z.number().min(min).max(max));
}

const off = z.literal('off').transform(() => undefined);
const port = integerBetween(0, 65_535);
const commaSeparated = z.string().transform((text) =>
  text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== ''),
);
const headerName = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const bridge = z.url({ protocol: /^(?:mqtts?|wss?)$/ }).transform((text, context): BridgeConfig => {
  const url = new URL(text);
  const [username, password] = [url.username, url.password].map(decodePercent);
  if (!username || !password) return context.addIssue('must hold user and password') ?? z.NEVER;
  url.username = '';
  url.password = '';
  return { url: url.href, username, password };
});
const networks = commaSeparated.pipe(z.array(z.string().refine((network) => ipaddr.isValidCIDR(network))));
const tileParts = ['{z}', '{x}', '{y}'];
const httpUrl = z.url({ protocol: /^https?$/ });

const variables = {
  HOST: [z.string().min(1), 'a host name or address'],
  PORT: [port, 'a port from 0 to 65535'],
  BASE_PATH: [
    z
      .string()
      .regex(/^(?:\/[A-Za-z0-9._~-]+)*\/?$/)
      .transform((path) => path.replace(/\/$/, '')),
    'empty or a path such as /api',
  ],
  MONGODB_URI: [z.string().regex(/^mongodb(?:\+srv)?:\/\/[^/]+/), 'an address such as mongodb://HOST:PORT/NAME'],
  DATA_DIR: [z.string().min(1), 'a directory'],
  MQTT_PORT: [z.union([off, port]), 'a port from 0 to 65535, or off'],
  MQTT_AUTH_SECRET: [z.string().min(16), 'at least 16 characters'],
  MQTT_BRIDGE_URL: [
    commaSeparated.pipe(z.array(bridge).min(1)),
    'an address such as mqtts://USER:PASSWORD@HOST:8883; several comma-separated',
  ],
  STREAM_RETENTION_DAYS: [z.union([off, integerBetween(1, 99_999)]), 'off or a number of days of at least 1'],
  EVENT_RETENTION_DAYS: [z.union([off, integerBetween(1, 99_999)]), 'off or a number of days of at least 1'],
  WORKERS: [integerBetween(1, 128), 'a number from 1 to 128'],
  SHUTDOWN_DELAY_S: [integerBetween(0, 9999), 'a number of seconds from 0 to 9999'],
  SECRET_KEY: [z.string().min(16), 'at least 16 characters'],
  BOOTSTRAP_API_KEY: [z.string().regex(/^[\x21-\x7e]{8,512}$/), '8 to 512 printable characters without spaces'],
  API_KEY_HEADERS: [
    commaSeparated
      .pipe(z.array(z.string().regex(headerName).toLowerCase()).min(1))
      .transform((headers) => [...new Set(['service.apikey', ...headers])]),
    'header names, comma-separated',
  ],
  PUBLIC_URL: [httpUrl.transform((url) => url.replace(/\/$/, '')), 'an http or https address'],
  FILESTORE_LOCAL_ROOT: [z.string().startsWith('/'), 'an absolute path'],
  FILESTORE_ALLOW_NETS: [networks, 'networks such as 10.0.0.0/8, comma-separated'],
  WEBHOOK_ALLOW_NETS: [networks, 'networks such as 10.0.0.0/8, comma-separated'],
  CORS_ORIGINS: [
    commaSeparated.pipe(z.array(z.union([z.literal('*'), httpUrl.transform((url) => new URL(url).origin)]))),
    'origins such as https://app.example, comma-separated',
  ],
  CONSOLE: [z.enum(['on', 'off']), 'on or off'],
  CONSOLE_TILES_URL: [
    z
      .url({ protocol: /^https?$/ })
      .refine((url) => /^[^{}?#]+\/\/[^{}/]+\//.test(url) && tileParts.every((part) => url.includes(part))),
    'an address such as https://tiles.example.org/{z}/{x}/{y}.png',
  ],
  RATE_LIMIT_PER_MINUTE: [z.union([off, integerBetween(1, 999_999_999)]), 'off or a number of at least 1'],
  LOG_LEVEL: [
    z.enum(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent']),
    'fatal, error, warn, info, debug, trace or silent',
  ],
  LOG_FORMAT: [
    z.enum(['combined', 'common', 'dev', 'short', 'tiny', 'json', 'off']),
    'combined, common, dev, short, tiny, json or off',
  ],
} as const satisfies Record<string, readonly [z.ZodType, string]>;

/** Internal variable: the primary process sets it for workers that run no broker. */
export const mqtt_in_other_worker_variable = 'MQTT_ELSEWHERE';

type Variable = keyof typeof variables;
type ValueOf<V extends Variable> = z.output<(typeof variables)[V][0]>;

/** Reads the environment; empty counts as unset. @throws StartError naming the first bad variable */
export function readConfig(env: Readonly<Record<string, string | undefined>>): Config {
  function read<V extends Variable>(variable: V): ValueOf<V> | undefined;
  function read<V extends Variable>(variable: V, fallback: string): ValueOf<V>;
  function read(variable: Variable, fallback?: string): unknown {
    const value = env[variable] || fallback;
    if (value === undefined) return undefined;
    const [schema, hint] = variables[variable];
    const result = schema.safeParse(value);
    if (!result.success) throw new StartError(`${variable} must be ${hint}`);
    return result.data;
  }

  const host = read('HOST', '127.0.0.1');
  const httpPort = read('PORT', '3000');
  const mongodb_uri = read('MONGODB_URI');
  const secret_key = read('SECRET_KEY');
  if (mongodb_uri !== undefined && secret_key === undefined) {
    throw new StartError(
      'SECRET_KEY must be set where MONGODB_URI is: at least 16 characters, the same on every instance',
    );
  }
  return Object.freeze({
    host,
    port: httpPort,
    base_path: read('BASE_PATH', '/'),
    mongodb_uri,
    data_dir: read('DATA_DIR', './data'),
    mqtt_port: read('MQTT_PORT', '1883'),
    mqtt_in_other_worker: env[mqtt_in_other_worker_variable] === '1',
    mqtt_auth_secret: read('MQTT_AUTH_SECRET'),
    mqtt_bridges: read('MQTT_BRIDGE_URL') ?? [],
    stream_retention_days: read('STREAM_RETENTION_DAYS'),
    event_retention_days: read('EVENT_RETENTION_DAYS', '90'),
    workers: read('WORKERS', '1'),
    shutdown_delay_s: read('SHUTDOWN_DELAY_S', '0'),
    secret_key,
    bootstrap_api_key: read('BOOTSTRAP_API_KEY'),
    api_key_headers: read('API_KEY_HEADERS', 'service.apikey'),
    public_url: read('PUBLIC_URL', `http://${formatUrlHost(host)}:${httpPort}`),
    filestore_local_root: read('FILESTORE_LOCAL_ROOT'),
    filestore_allow_nets: read('FILESTORE_ALLOW_NETS') ?? [],
    webhook_allow_nets: read('WEBHOOK_ALLOW_NETS') ?? [],
    cors_origins: read('CORS_ORIGINS') ?? [],
    console: read('CONSOLE', 'on'),
    console_tiles_url: read('CONSOLE_TILES_URL'),
    rate_limit_per_minute: read('RATE_LIMIT_PER_MINUTE'),
    log_level: read('LOG_LEVEL', 'info'),
    log_format: read('LOG_FORMAT', 'combined'),
  });
}

const max_misspelled_letters = 2;

/** Finds unknown variables with the first word of a known one and few letters different, such as MQTT_PROT. */
export function findMisspelledVariables(
  env: Readonly<Record<string, string | undefined>>,
): { variable: string; similar: string }[] {
  const names = Object.keys(variables);
  return Object.keys(env)
    .filter((variable) => !names.includes(variable))
    .flatMap((variable) => {
      const [firstWord = ''] = variable.split('_');
      const similar = names.find(
        (name) => name.startsWith(`${firstWord}_`) && countEdits(variable, name) <= max_misspelled_letters,
      );
      return similar === undefined ? [] : [{ variable, similar }];
    });
}

/** Levenshtein distance. */
function countEdits(text: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, column) => column);
  for (const letter of text) {
    const next = [(row[0] ?? 0) + 1];
    for (const [column, otherLetter] of [...other].entries()) {
      const replaced = (row[column] ?? 0) + (letter === otherLetter ? 0 : 1);
      next.push(Math.min(replaced, (row[column + 1] ?? 0) + 1, (next[column] ?? 0) + 1));
    }
    row = next;
  }
  return row[other.length] ?? 0;
}

/** Formats a host for a URL: IPv6 addresses in brackets. */
export function formatUrlHost(host: string): string {
  return host.includes(':') ? `[${host}]` : host;
}
