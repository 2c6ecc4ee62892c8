import { readFileSync } from 'node:fs';
import { expect, it } from '@jest/globals';
import { readConfig } from '../../src/config.js';

/** Variables with their defaults, by hand from reference/configuration.md#variables; empty if there is no default. */
const reference: Record<string, string> = {
  HOST: '127.0.0.1',
  PORT: '3000',
  BASE_PATH: '',
  MONGODB_URI: '',
  DATA_DIR: './data',
  MQTT_PORT: '1883',
  MQTTS_PORT: '8883',
  TLS_CERT_FILE: '',
  TLS_KEY_FILE: '',
  TLS_CLIENT_CA_FILE: '',
  MQTT_AUTH_SECRET: '',
  MQTT_BRIDGE_URL: '',
  STREAM_RETENTION_DAYS: 'off',
  SUMMARY_RETENTION_DAYS: 'off',
  EVENT_RETENTION_DAYS: '90',
  WORKERS: '1',
  SHUTDOWN_DELAY_S: '0',
  SECRET_KEY: '',
  BOOTSTRAP_API_KEY: '',
  API_KEY_HEADERS: 'service.apikey',
  PUBLIC_URL: '',
  FILESTORE_LOCAL_ROOT: '',
  FILESTORE_ALLOW_NETS: '',
  WEBHOOK_ALLOW_NETS: '',
  WEBHOOKS: 'on',
  SMTP_URL: '',
  SMTP_FROM: '',
  TRUSTED_PROXIES: '',
  CORS_ORIGINS: '',
  OIDC_ISSUER: '',
  OIDC_CLIENT_ID: '',
  OIDC_CLAIM: '',
  OIDC_SCOPE: 'openid',
  CONSOLE: 'on',
  CONSOLE_TILES_URL: '',
  RATE_LIMIT_PER_MINUTE: 'off',
  LOG_LEVEL: 'info',
  LOG_FORMAT: 'combined',
};

const readText = (name: string) => readFileSync(new URL(`../../${name}`, import.meta.url), 'utf8');

function readExampleFile(): Record<string, string> {
  const lines = readText('.env.example').split('\n');
  const assignments = lines.filter((line) => line !== '' && !line.startsWith('#'));
  return Object.fromEntries(
    assignments.map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
  );
}

it('names every variable in .env.example, with its default', () => {
  expect(readExampleFile()).toEqual(reference);
});

it('reads the variables of the reference and no others', () => {
  const read = new Set<string>();
  const env = new Proxy<Record<string, string>>(
    {},
    {
      get(_target, name) {
        read.add(String(name));
        return undefined;
      },
    },
  );
  readConfig(env);
  expect([...read].sort()).toEqual(Object.keys(reference).sort());
});

it('reads the same configuration from .env.example as from an empty environment', () => {
  expect(readConfig(readExampleFile())).toEqual(readConfig({}));
});
