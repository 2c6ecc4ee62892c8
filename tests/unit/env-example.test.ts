import { readFileSync } from 'node:fs';
import { expect, it } from '@jest/globals';
import { readConfig } from '../../src/config.js';

/** The variables of contract 1 and 4 that the service reads, with their defaults; empty where it has none. */
const contract: Record<string, string> = {
  HOST: '127.0.0.1',
  PORT: '3000',
  BASE_PATH: '',
  MONGODB_URI: '',
  DATA_DIR: './data',
  MQTT_PORT: '1883',
  MQTT_AUTH_SECRET: '',
  MQTT_BRIDGE_URL: '',
  STREAM_RETENTION_DAYS: 'off',
  WORKERS: '1',
  SECRET_KEY: '',
  BOOTSTRAP_API_KEY: '',
  API_KEY_HEADERS: 'service.apikey',
  PUBLIC_URL: '',
  FILESTORE_LOCAL_ROOT: '',
  FILESTORE_ALLOW_NETS: '',
  CORS_ORIGINS: '',
  RATE_LIMIT_PER_MINUTE: 'off',
  LOG_LEVEL: 'info',
  LOG_FORMAT: 'combined',
};

const fileOf = (name: string) => readFileSync(new URL(`../../${name}`, import.meta.url), 'utf8');

function exampleFile(): Record<string, string> {
  const lines = fileOf('.env.example').split('\n');
  const given = lines.filter((line) => line !== '' && !line.startsWith('#'));
  return Object.fromEntries(given.map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]));
}

it('names every variable in .env.example, with its default', () => {
  expect(exampleFile()).toEqual(contract);
});

it('reads the variables of the contract and no others', () => {
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
  // what a process tells its own workers is nobody else's
  read.delete('MQTT_ELSEWHERE');
  expect([...read].sort()).toEqual(Object.keys(contract).sort());
});

it('starts with .env.example as it starts with nothing set', () => {
  expect(readConfig(exampleFile())).toEqual(readConfig({}));
});

it('lists every variable with its default in the README', () => {
  const table = new Map<string, string>();
  for (const [, name, value] of fileOf('README.md').matchAll(/^\| `([A-Z_]+)` \| ([^|]*) \|/gm)) {
    table.set(name ?? '', (value ?? '').replaceAll('`', ''));
  }
  expect([...table.keys()].sort()).toEqual(Object.keys(contract).sort());
  for (const [name, value] of Object.entries(contract)) if (value !== '') expect(table.get(name)).toBe(value);
});
