import { describe, expect, it } from '@jest/globals';
import { findMisspelledVariables, readConfig } from '../../src/config.js';
import { StartError } from '../../src/errors.js';

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
});

const badValues: [string, ...string[]][] = [
  ['HOST', 'exa mple', 'http://127.0.0.1', '127.0.0.1/x', 'a:b', '[::1]'],
  ['PORT', '65536', 'http', '-1', '0x10', '0x50'],
  ['BASE_PATH', 'api', '/a b', '//', '/..', '/api/../x', '/./api', '/api/.'],
  ['BASE_PATH', '/console', '/docs/', '/healthz', '/metrics/api', '/mqtt', '/mqtt-auth', '/openapi.json', '/readyz'],
  ['MONGODB_URI', 'mongodb://h', 'mongodb://h/', 'mongodb://h/?replicaSet=rs0', 'mongodb+srv://h?a=b'],
  ['MONGODB_URI', 'localhost:27017', 'http://localhost', 'mongodb://', 'mongodb://h/a/b', 'mongodb://h/a.b?x=1'],
  ['MONGODB_URI', 'mongodb://u:p@h/$a', 'mongodb://h/a b', 'mongodb+srv://h/a"b', `mongodb://h/${'a'.repeat(64)}`],
  ['MQTT_PORT', '65536', 'on'],
  ['WORKERS', '0', '129', 'many', '1.5'],
  ['SECRET_KEY', 'short'],
  ['BOOTSTRAP_API_KEY', 'short', 'with a space', `long${'g'.repeat(512)}`],
  ['API_KEY_HEADERS', 'not a header', ','],
  ['PUBLIC_URL', 'ftp://example.org', 'example.org', 'https://example.org/?a=b', 'https://example.org/#a'],
  ['PUBLIC_URL', 'https://user@example.org', 'https://user:word@example.org/a', 'https://example.org?'],
  ['MQTT_BRIDGE_URL', ',', 'mqtt://127.0.0.1'],
  ['CORS_ORIGINS', 'example.org', 'javascript:alert(1)'],
  ['TRUSTED_PROXIES', '10.0.0.1', 'on', '10.0.0.0/33'],
  ['SMTP_URL', 'mail.example', 'https://mail.example', 'smtp://', 'smtp://u@mail.example', 'smtp://mail.example:99999'],
  [
    'SMTP_URL',
    'smtp://u:%zz@mail.example',
    'smtp://mail.example/x',
    'smtps://mail.example?tls=off',
    'smtp://:p@mail.example',
  ],
  ['SMTP_FROM', 'alarms', 'a@b@c', 'a@b, c@d', 'Alarms <a@b', 'Alarms <a@b>\r\nBcc: c@d', 'A"B <a@b>', '<a@b> x'],
  [
    'OIDC_ISSUER',
    'id.example.org',
    'http://id.example.org',
    'http://127.0.0.1.example.org',
    'http://10.0.0.1',
    'ftp://localhost',
    'https://user@id.example.org',
    'https://id.example.org/?realm=a',
    'https://id.example.org/#a',
  ],
  ['OIDC_CLIENT_ID', 'a b', 'x'.repeat(256)],
  ['OIDC_CLAIM', '/a~b', '/~'],
  ['OIDC_SCOPE', 'profile', 'openid  profile', 'openid,profile', ' openid'],
  ['RATE_LIMIT_PER_MINUTE', '0', 'on', '-5', '1.5'],
  ['STREAM_RETENTION_DAYS', '0'],
  ['EVENT_RETENTION_DAYS', '0'],
  ['SHUTDOWN_DELAY_S', '10000'],
  ['LOG_LEVEL', 'loud'],
  ['LOG_FORMAT', 'common', 'dev', 'short', 'tiny', 'xml'],
];

it.each(badValues)('refuses %s=%s and the like with one line that names the variable', (variable, ...values) => {
  for (const value of values) {
    const read = () =>
      readConfig({ MONGODB_URI: 'mongodb://127.0.0.1/x', SECRET_KEY: 'only for this test', [variable]: value });
    expect(read).toThrow(StartError);
    expect(read).toThrow(new RegExp(`^${variable} must be .*$`));
  }
});

it.each([
  ['BASE_PATH', '/', ''],
  ['BASE_PATH', '/iot/.well/v1.2/', '/iot/.well/v1.2'],
  ['BASE_PATH', '/consoles/docs', '/consoles/docs'],
  ['PUBLIC_URL', 'https://example.org:8443/iot/@a/', 'https://example.org:8443/iot/@a'],
  ['PUBLIC_URL', 'http://[::1]:3000', 'http://[::1]:3000'],
  ['MONGODB_URI', 'mongodb://u:p%40@a:1,b:2/fleet-1?replicaSet=rs0&tlsCAFile=/etc/ca.pem'],
  ['MONGODB_URI', 'mongodb://h/x?replicaSet=rs0'],
  ['MONGODB_URI', 'mongodb+srv://cluster.example.org/fleet?tlsCAFile=/etc/ca.pem'],
])('reads %s=%s', (variable, text, value = text) => {
  const config: Record<string, unknown> = { ...readConfig({ SECRET_KEY: 'only for this test', [variable]: text }) };
  expect(config[variable.toLowerCase()]).toBe(value);
});

it.each([
  ['smtp://mail.example', { host: 'mail.example', port: 587, isSecure: false }],
  ['smtps://[::1]/', { host: '::1', port: 465, isSecure: true }],
  [
    'smtp://u%40x:p%2F%3A@mail.example:25',
    { host: 'mail.example', port: 25, isSecure: false, auth: { user: 'u@x', pass: 'p/:' } },
  ],
])('reads SMTP_URL=%s, which may be set alone', (SMTP_URL, smtp_url) => {
  expect(readConfig({ SMTP_URL })).toMatchObject({ smtp_url });
});

it.each([
  ['a@example.com', { name: '', address: 'a@example.com' }],
  ['Alarms of the north <a@example.com>', { name: 'Alarms of the north', address: 'a@example.com' }],
])('reads SMTP_FROM=%s', (SMTP_FROM, smtp_from) => {
  expect(readConfig({ SMTP_FROM })).toMatchObject({ smtp_from });
});

const oidc = { OIDC_ISSUER: 'https://id.example.org/realms/a', OIDC_CLIENT_ID: 'console', OIDC_CLAIM: 'a.b' };

it.each([
  'https://id.example.org',
  'https://tenant.example.org/',
  'http://127.0.0.1:8080/realms/a',
  'http://localhost:4000',
  'http://[::1]:4000',
])('keeps OIDC_ISSUER=%s as it is', (OIDC_ISSUER) => {
  expect(readConfig({ ...oidc, OIDC_ISSUER })).toMatchObject({
    oidc_issuer: OIDC_ISSUER,
    oidc_client_id: 'console',
    oidc_claim: 'a.b',
  });
});

it.each([
  ['OIDC_ISSUER', 'OIDC_ISSUER'],
  ['OIDC_CLIENT_ID', 'OIDC_CLIENT_ID'],
  ['OIDC_CLAIM', 'OIDC_CLAIM'],
  ['OIDC_CLIENT_ID and OIDC_CLAIM', 'OIDC_CLIENT_ID', 'OIDC_CLAIM'],
])('names %s where it alone is missing', (missing, ...unset) => {
  const env = { ...oidc, ...Object.fromEntries(unset.map((name) => [name, ''])) };
  expect(() => readConfig(env)).toThrow(
    new StartError(`${missing} must be set: OIDC_ISSUER, OIDC_CLIENT_ID, OIDC_CLAIM work together only`),
  );
});

describe('TLS', () => {
  const files = { TLS_CERT_FILE: 'cert.pem', TLS_KEY_FILE: 'key.pem' };

  it('makes https the default of PUBLIC_URL, and opens port 8883', () => {
    const { public_url, mqtt_port, mqtts_port } = readConfig(files);
    expect({ public_url, mqtt_port, mqtts_port }).toEqual({
      public_url: 'https://127.0.0.1:3000',
      mqtt_port: 1883,
      mqtts_port: 8883,
    });
    expect(readConfig({ ...files, MQTTS_PORT: 'off' }).mqtts_port).toBeUndefined();
    expect(readConfig({ MQTTS_PORT: '8883' }).mqtts_port).toBeUndefined();
  });

  it.each([
    [{ TLS_KEY_FILE: 'a' }, 'TLS_CERT_FILE must be set: TLS_CERT_FILE, TLS_KEY_FILE work together only'],
    [{ TLS_CERT_FILE: 'a' }, 'TLS_KEY_FILE must be set: TLS_CERT_FILE, TLS_KEY_FILE work together only'],
    [{ TLS_CLIENT_CA_FILE: 'a' }, 'TLS_CERT_FILE must be set where TLS_CLIENT_CA_FILE is'],
  ])('refuses %j alone', (env, message) => {
    expect(() => readConfig(env)).toThrow(new StartError(message));
  });
});
