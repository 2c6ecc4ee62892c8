import ipaddr from 'ipaddr.js';
import { z } from 'zod';
import { isSecureAddress } from './egress/addresses.js';
import { StartError } from './errors.js';
import { findMisspelled } from './lib/misspelled-variables.js';
import { parseBridge, parseSender, parseSmtpServer } from './lib/server-addresses.js';

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
const parsedBy = <T>(parse: (text: string) => T | undefined) =>
  z.string().transform((text, context): T => parse(text) ?? context.addIssue('is malformed') ?? z.NEVER);
const networks = commaSeparated.pipe(z.array(z.string().refine((network) => ipaddr.isValidCIDR(network))));
const days = z.union([off, integerBetween(1, 99_999)]);
const tileParts = ['{z}', '{x}', '{y}'];
/** First parts of the paths that stay at the root, whatever BASE_PATH is. */
const rootNames: readonly string[] = [
  ...['console', 'docs', 'healthz', 'metrics', 'mqtt', 'mqtt-auth', 'openapi.json', 'readyz'],
];
const httpUrl = z.url({ protocol: /^https?$/ });
const issuer = z.url().refine((text) => isSecureAddress(text) && !/[?#@\s]/.test(text));

/** An environment variable; .env.example and reference/configuration.md#variables are written from it (`npm run docs`). */
export interface Variable {
  type: z.ZodType;
  /** Completes the message `NAME must be …`. */
  expected: string;
  /** Read where the variable is unset; without it the value is undefined. */
  fallback?: string;
  /** The default in the documents where it is no constant. */
  shownDefault?: string;
  /** Markdown, with links relative to docs/reference/. */
  meaning: string;
}

/** All variables, in the order of the documents. */
export const variables = {
  HOST: {
    type: z
      .string()
      .regex(/^[^/?#@]+$/)
      .refine((host) => URL.canParse(`http://${formatUrlHost(host)}`)),
    expected: 'a host name or address',
    fallback: '127.0.0.1',
    meaning: 'host name or address on which HTTP and MQTT listen',
  },
  PORT: {
    type: port,
    expected: 'a port from 0 to 65535',
    fallback: '3000',
    meaning: 'HTTP port, 0 to 65535; 0 picks a free one',
  },
  BASE_PATH: {
    type: z
      .string()
      .regex(/^(?:\/(?!\.\.?(?:\/|$))[A-Za-z0-9._~-]+)*\/?$/)
      .refine((path) => !rootNames.includes(path.split('/')[1] ?? ''))
      .transform((path) => path.replace(/\/$/, '')),
    expected: `empty or a path such as /api that begins with none of ${rootNames.join(', ')}`,
    fallback: '',
    meaning:
      'path prefix of the interface, such as `/api`; root paths such as `/docs` stay at the root, and cannot begin it',
  },
  PUBLIC_URL: {
    type: httpUrl.regex(/^[^/]+\/\/[^/?#@]+(?:\/[^?#]*)?$/).transform((url) => url.replace(/\/$/, '')),
    expected: 'an http or https address without user, query and fragment',
    shownDefault: '`http://HOST:PORT`, with TLS `https://…`',
    meaning: 'address that clients use, http or https; links begin with it',
  },
  MONGODB_URI: {
    // the name as MongoDB allows it
    type: z.string().regex(/^mongodb(?:\+srv)?:\/\/(?:[^@]*@)?[^/?@]+\/[^/\\."$\s?]{1,63}(?:\?.*)?$/),
    expected:
      'an address such as mongodb://HOST:PORT/NAME, with the name of the database (test, where earlier versions got none)',
    meaning:
      '`mongodb://` or `mongodb+srv://` address of a replica set, its path the name of the database; unset: [embedded database](#14-embedded-database)',
  },
  DATA_DIR: {
    type: z.string().min(1),
    expected: 'a directory',
    fallback: './data',
    meaning: 'folder of the embedded database',
  },
  SECRET_KEY: {
    type: z.string().min(16),
    expected: 'at least 16 characters',
    shownDefault: 'generated',
    meaning:
      '[encrypts secrets](#15-secret-key); at least 16 characters, the same on every instance; required with `MONGODB_URI`',
  },
  BOOTSTRAP_API_KEY: {
    type: z.string().regex(/^[\x21-\x7e]{8,512}$/),
    expected: '8 to 512 printable characters without spaces',
    shownDefault: 'generated',
    meaning: 'first API key of an empty database, 8 to 512 printable ASCII characters without spaces',
  },
  API_KEY_HEADERS: {
    type: commaSeparated
      .pipe(z.array(z.string().regex(headerName).toLowerCase()).min(1))
      .transform((headers) => [...new Set(['service.apikey', ...headers])]),
    expected: 'header names, comma-separated',
    fallback: 'service.apikey',
    meaning:
      'headers that may carry the [API key](access.md#23-authentication), comma-separated; `service.apikey` always may; [former clients](access.md#28-former-clients) use others',
  },
  OIDC_ISSUER: {
    type: issuer,
    expected: 'an https address without user, query and fragment; http on loopback only',
    meaning:
      'issuer whose [tokens](access.md#211-sign-in-with-openid-connect) are accepted, exactly as its discovery document names it: https, or http on loopback; set with the next two',
  },
  OIDC_CLIENT_ID: {
    type: z.string().regex(/^[\x21-\x7e]{1,255}$/),
    expected: '1 to 255 printable characters without spaces',
    meaning: 'client of the console at the issuer, and audience that tokens must name',
  },
  OIDC_CLAIM: {
    type: z.string().regex(/^(?:[^/]|\/(?:[^~]|~[01])*$)/),
    expected: 'the name of a claim, names joined by dots, or a JSON Pointer',
    meaning: 'claim that holds account, username and scope: its name, names joined by dots, or a JSON Pointer',
  },
  OIDC_SCOPE: {
    type: z.string().regex(/^(?:[\x21\x23-\x5b\x5d-\x7e]+ )*openid(?: [\x21\x23-\x5b\x5d-\x7e]+)*$/),
    expected: 'scopes separated by spaces, openid among them',
    fallback: 'openid',
    meaning:
      'scopes that the console asks for, separated by spaces, `openid` among them; many issuers renew a sign-in only with `offline_access`',
  },
  RATE_LIMIT_PER_MINUTE: {
    type: z.union([off, integerBetween(1, 999_999_999)]),
    expected: 'off or a number of at least 1',
    fallback: 'off',
    meaning: '[requests per key and minute](access.md#29-rate-limit) in each process, 1 to 999999999',
  },
  TRUSTED_PROXIES: {
    type: networks,
    expected: 'networks such as 10.0.0.0/8, comma-separated',
    fallback: '',
    meaning:
      'networks of [proxies](../operations.md#proxies) whose `X-Forwarded-For` and, for MQTT, PROXY protocol is believed, such as `10.0.0.0/8,fd00::/8`',
  },
  CORS_ORIGINS: {
    type: commaSeparated.pipe(z.array(z.union([z.literal('*'), httpUrl.transform((url) => new URL(url).origin)]))),
    expected: 'origins such as https://app.example, comma-separated',
    fallback: '',
    meaning: 'origins whose web pages may [call the interface](requests.md#412-cors), comma-separated, or `*`',
  },
  MQTT_PORT: {
    type: z.union([off, port]),
    expected: 'a port from 0 to 65535, or off',
    fallback: '1883',
    meaning: 'port of the [MQTT broker](mqtt.md#113-broker), or `off`',
  },
  TLS_CERT_FILE: {
    type: z.string(),
    expected: 'a file',
    meaning:
      'PEM file of the [certificate](#110-tls) and its chain; with it `PORT` speaks https only, and `MQTTS_PORT` MQTT over TLS',
  },
  TLS_KEY_FILE: {
    type: z.string(),
    expected: 'a file',
    meaning: 'PEM file of the private key of the certificate, without a passphrase; set with `TLS_CERT_FILE`',
  },
  TLS_CLIENT_CA_FILE: {
    type: z.string(),
    expected: 'a file',
    meaning:
      'PEM file of the certificate authorities that sign [certificates of devices](mqtt.md#1116-certificates-of-devices) for `MQTTS_PORT`',
  },
  MQTTS_PORT: {
    type: z.union([off, port]),
    expected: 'a port from 0 to 65535, or off',
    fallback: '8883',
    meaning: 'port of the [MQTT broker](mqtt.md#113-broker) over TLS, or `off`; without `TLS_CERT_FILE` there is none',
  },
  MQTT_AUTH_SECRET: {
    type: z.string().min(16),
    expected: 'at least 16 characters',
    meaning:
      'secret with which RabbitMQ calls [`/mqtt-auth/`](../external-broker.md#rabbitmq), at least 16 characters; unset: 404',
  },
  MQTT_BRIDGE_URL: {
    type: z.union([z.literal('').transform(() => []), commaSeparated.pipe(z.array(parsedBy(parseBridge)).min(1))]),
    expected: 'an address such as mqtts://USER:PASSWORD@HOST:8883; several comma-separated',
    fallback: '',
    meaning:
      '[external brokers](../external-broker.md#the-bridge) to read from: `mqtt://`, `mqtts://`, `ws://` or `wss://USER:PASSWORD@HOST:PORT`, user and password percent-encoded, comma-separated',
  },
  STREAM_RETENTION_DAYS: {
    type: days,
    expected: 'off or a number of days from 1 to 99999',
    fallback: 'off',
    meaning:
      'days after which [streams are removed](streams.md#1010-retention), by `at`, 1 to 99999, unless their device or model says other; `off` keeps them',
  },
  SUMMARY_RETENTION_DAYS: {
    type: z.union([off, integerBetween(1, 36_500)]),
    expected: 'off or a number of days from 1 to 36500',
    fallback: 'off',
    meaning:
      'days after which [summaries](series.md#149-summaries) of removed streams are removed, by `at`, 1 to 36500, unless their device or model says other; `off` keeps them',
  },
  EVENT_RETENTION_DAYS: {
    type: days,
    expected: 'off or a number of days from 1 to 99999',
    fallback: '90',
    meaning: 'days after which [events are removed](events.md#1511-retention), 1 to 99999; `off` keeps them',
  },
  FILESTORE_LOCAL_ROOT: {
    type: z.string().startsWith('/'),
    expected: 'an absolute path',
    meaning:
      'absolute path of the folder for [local storage](file-storage.md#121-providers), with a subfolder for each account',
  },
  FILESTORE_ALLOW_NETS: {
    type: networks,
    expected: 'networks such as 10.0.0.0/8, comma-separated',
    fallback: '',
    meaning:
      'networks beyond public addresses that [file storage](file-storage.md#126-allowed-addresses) may reach, such as `10.0.0.0/8,fd00::/8`',
  },
  WEBHOOK_ALLOW_NETS: {
    type: networks,
    expected: 'networks such as 10.0.0.0/8, comma-separated',
    fallback: '',
    meaning: 'networks beyond public addresses that [webhooks](webhooks.md#1612-addresses) may reach',
  },
  SMTP_URL: {
    type: parsedBy(parseSmtpServer),
    expected: 'an address such as smtp://USER:PASSWORD@HOST:587 or smtps://HOST',
    meaning:
      '[mail server](../operations.md#mail) of notifications: `smtp://` (port 587, STARTTLS where it is offered) or `smtps://` (port 465), user and password percent-encoded; set with the next one',
  },
  SMTP_FROM: {
    type: parsedBy(parseSender),
    expected: 'an address such as alarms@example.com or Alarms <alarms@example.com>',
    meaning: 'sender of mails: an address, or a name and the address in `<>`',
  },
  WEBHOOKS: {
    type: z.enum(['on', 'off']),
    expected: 'on or off',
    fallback: 'on',
    meaning:
      '`off` sends no [webhook or notification](webhooks.md#1613-switched-off), for rehearsals on a restored copy',
  },
  CONSOLE: {
    type: z.enum(['on', 'off']),
    expected: 'on or off',
    fallback: 'on',
    meaning: '[web console](#19-console), `on` or `off`',
  },
  CONSOLE_TILES_URL: {
    type: z
      .url({ protocol: /^https?$/ })
      .refine((url) => /^[^{}?#]+\/\/[^{}/]+\//.test(url) && tileParts.every((part) => url.includes(part))),
    expected: 'an address such as https://tiles.example.org/{z}/{x}/{y}.png',
    meaning: 'map tiles, such as `https://tiles.example.org/{z}/{x}/{y}.png`; unset: a built-in outline',
  },
  WORKERS: {
    type: integerBetween(1, 128),
    expected: 'a number from 1 to 128',
    fallback: '1',
    meaning: 'HTTP processes on one port, 1 to 128; the first also runs the MQTT broker',
  },
  SHUTDOWN_DELAY_S: {
    type: integerBetween(0, 9999),
    expected: 'a number of seconds from 0 to 9999',
    fallback: '0',
    meaning: '[seconds after SIGTERM](#13-stop) during which the service is not ready but still serves, 0 to 9999',
  },
  LOG_LEVEL: {
    type: z.enum(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent']),
    expected: 'fatal, error, warn, info, debug, trace or silent',
    fallback: 'info',
    meaning: 'log on standard error: `fatal`, `error`, `warn`, `info`, `debug`, `trace` or `silent`',
  },
  LOG_FORMAT: {
    type: z.enum(['combined', 'json', 'off']),
    expected: 'combined, json or off',
    fallback: 'combined',
    meaning: '[access log](#17-logs) on standard output: `combined`, `json` or `off`',
  },
} as const satisfies Record<string, Variable>;

type Variables = typeof variables;
type ValueOf<V extends Variable> = z.output<V['type']> | (V extends { fallback: string } ? never : undefined);

/** The configuration from the environment: each variable under its name in lower case. */
export type Config = Readonly<
  { [Name in keyof Variables as Lowercase<Name>]: ValueOf<Variables[Name]> } & { public_url: string }
>;

/** Reads the environment; empty counts as unset. @throws StartError naming the first bad variable */
export function readConfig(env: Readonly<Record<string, string | undefined>>): Config {
  const values = Object.entries<Variable>(variables).map(([name, { type, expected, fallback }]) => {
    const text = env[name] || fallback;
    const result = text === undefined ? { success: true, data: undefined } : type.safeParse(text);
    if (!result.success) throw new StartError(`${name} must be ${expected}`);
    return [name.toLowerCase(), result.data];
  });
  const config: Config = Object.fromEntries(values);
  if (config.mongodb_uri !== undefined && config.secret_key === undefined) {
    throw new StartError(
      'SECRET_KEY must be set where MONGODB_URI is: at least 16 characters, the same on every instance',
    );
  }
  assertSetTogether(['OIDC_ISSUER', 'OIDC_CLIENT_ID', 'OIDC_CLAIM'], env);
  assertSetTogether(['TLS_CERT_FILE', 'TLS_KEY_FILE'], env);
  const { tls_cert_file, tls_client_ca_file, public_url = formatOrigin(config, config.port) } = config;
  if (tls_client_ca_file !== undefined && tls_cert_file === undefined)
    throw new StartError('TLS_CERT_FILE must be set where TLS_CLIENT_CA_FILE is');
  const mqtts_port = tls_cert_file === undefined ? undefined : config.mqtts_port;
  return Object.freeze({ ...config, public_url, mqtts_port });
}

/** @throws StartError if some of the variables are set, but not all */
function assertSetTogether(names: readonly string[], env: Readonly<Record<string, string | undefined>>): void {
  const missing = names.filter((name) => !env[name]);
  if (missing.length > 0 && missing.length < names.length)
    throw new StartError(`${missing.join(' and ')} must be set: ${names.join(', ')} work together only`);
}

/** Finds unknown variables with the first word of a known one and few letters different, such as MQTT_PROT. */
export function findMisspelledVariables(env: Readonly<Record<string, string | undefined>>) {
  return findMisspelled(Object.keys(env), Object.keys(variables));
}

/** Formats the address on which HTTP listens. */
export function formatOrigin({ host, tls_cert_file }: Pick<Config, 'host' | 'tls_cert_file'>, port: number): string {
  return `${tls_cert_file === undefined ? 'http' : 'https'}://${formatUrlHost(host)}:${port}`;
}

/** Formats a host for a URL: IPv6 addresses in brackets. */
export function formatUrlHost(host: string): string {
  return host.includes(':') ? `[${host}]` : host;
}
