import { describe, expect, it } from '@jest/globals';
import { findMisspelledVariables, readConfig } from '../../src/config.js';

describe('misspelled variables', () => {
  it.each([
    ['MQTT_PROT', 'MQTT_PORT'],
    ['MQTT_POR', 'MQTT_PORT'],
    ['API_KEY_HEADER', 'API_KEY_HEADERS'],
    ['LOG_FROMAT', 'LOG_FORMAT'],
    ['MONGODB_URL', 'MONGODB_URI'],
  ])('finds %s', (variable, similar) => {
    expect(findMisspelledVariables({ [variable]: '1' })).toEqual([{ variable, similar }]);
  });

  it.each(['MQTT_PORT', 'HOST', 'HOSTS', 'POTR', 'MQTT_PORTAL1', 'MQTT_SOMEWHERE', 'LOG', 'LOG_', 'PATH', '_', ''])(
    'ignores %j',
    (variable) => {
      expect(findMisspelledVariables({ [variable]: '1' })).toEqual([]);
    },
  );
});

it.each([
  [undefined, ['service.apikey']],
  ['X-Key', ['service.apikey', 'x-key']],
  ['x-key, service.apikey,apikey', ['service.apikey', 'x-key', 'apikey']],
])('API_KEY_HEADERS=%s keeps service.apikey, as the first', (API_KEY_HEADERS, headers) => {
  expect(readConfig({ ...(API_KEY_HEADERS && { API_KEY_HEADERS }) }).api_key_headers).toEqual(headers);
});

describe('numbers', () => {
  it.each([
    ['PORT', '65535', 65_535],
    ['WORKERS', '128', 128],
    ['STREAM_RETENTION_DAYS', '99999', 99_999],
    ['EVENT_RETENTION_DAYS', 'off', undefined],
    ['RATE_LIMIT_PER_MINUTE', '1', 1],
    ['SHUTDOWN_DELAY_S', '0', 0],
    ['MQTT_PORT', 'off', undefined],
  ])('reads %s=%s', (variable, text, value) => {
    const config: Record<string, unknown> = { ...readConfig({ [variable]: text }) };
    expect(config[variable.toLowerCase()]).toBe(value);
  });

  it.each([
    ['PORT', '65536'],
    ['PORT', '-1'],
    ['PORT', '0x10'],
    ['WORKERS', '0'],
    ['WORKERS', '129'],
    ['STREAM_RETENTION_DAYS', '0'],
    ['EVENT_RETENTION_DAYS', '0'],
    ['RATE_LIMIT_PER_MINUTE', '1.5'],
    ['SHUTDOWN_DELAY_S', '10000'],
  ])('refuses %s=%s', (variable, text) => {
    expect(() => readConfig({ [variable]: text })).toThrow(new RegExp(`^${variable} must be `));
  });
});
