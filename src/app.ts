import type { Server } from 'node:http';
import { type Express, Router } from 'express';
import type { Config } from './config.js';
import type { Database, Log } from './db/database.js';
import { AppError } from './errors.js';
import { openNetwork } from './file-storage/egress.js';
import type { Provider } from './file-storage/provider.js';
import { providers } from './file-storage/providers.js';
import type { Vault } from './file-storage/vault.js';
import { accessLog } from './http/access-log.js';
import { admissionControl } from './http/admission.js';
import { ahead } from './http/ahead.js';
import { apiKeyEndpoints } from './http/api-keys.js';
import { authenticate } from './http/authenticate.js';
import { catalogueEndpoints } from './http/catalogues.js';
import type { Endpoint } from './http/context.js';
import { corsMiddleware } from './http/cors.js';
import { deviceConfigEndpoints } from './http/device-configs.js';
import { docsRouter } from './http/docs.js';
import { errorHandler } from './http/error-handler.js';
import { fileLinkRouter, linksPath } from './http/file-links.js';
import { healthRoutes } from './http/health.js';
import { linkedStorageEndpoints } from './http/linked-storage.js';
import type { Metrics } from './http/metrics.js';
import { byHead, decodablePath, mount, optionsOf, unauthorizedBodies } from './http/mount.js';
import { mqttAuthRouter } from './http/mqtt-auth.js';
import { mqttDeviceEndpoints } from './http/mqtt-devices.js';
import { rateLimiter } from './http/rate-limit.js';
import { resourceEndpoints } from './http/resource-endpoints.js';
import { securityHeaders } from './http/security-headers.js';
import { streamEndpoints } from './http/streams.js';
import { type Keyring, openKeyring } from './repositories/api-keys.js';
import { resources } from './resources/index.js';
import { openApiDocument } from './schema/openapi.js';
import { type AreAncestorsEnabled, createEnabledCache } from './telemetry/enabled-cache.js';
import { createIngest, type Ingest } from './telemetry/ingest.js';

/** Of the interface; a test holds it to that of package.json. */
const version = '0.1.0';

export interface AppDeps {
  /** As `openServer` makes them, without anything that answers. */
  server: Server;
  express: Express;
  config: Pick<
    Config,
    'base_path' | 'api_key_headers' | 'cors_origins' | 'rate_limit_per_minute' | 'log_format' | 'public_url'
  > &
    Partial<Pick<Config, 'mqtt_auth_secret' | 'mqtt_bridges' | 'filestore_local_root' | 'filestore_allow_nets'>>;
  /** The kinds of storage that can be linked; all there are where absent. */
  providers?: readonly Provider[];
  /** For what is stored encrypted. */
  vault: Vault;
  db: Database;
  log: Log;
  metrics: Metrics;
  /** Epoch milliseconds. */
  clock: () => number;
  /** Where access lines go. */
  writeLine: (line: string) => void;
}

export interface App {
  /** Everything below {base_url}, as it is served. */
  operations: readonly Endpoint[];
  /** What the MQTT broker shares with it. */
  keyring: Keyring;
  enabledAbove: AreAncestorsEnabled;
  record: Ingest;
}

/** The HTTP side of the service, on `server`: the whole order of its middleware stands here. */
export function createApp({
  server,
  express: app,
  config,
  db,
  vault,
  log,
  metrics,
  clock,
  writeLine,
  ...deps
}: AppDeps): App {
  const keyring = openKeyring(db);
  const enabledAbove = createEnabledCache(db, clock);
  const record = createIngest(db, enabledAbove, metrics.telemetry);
  const base = config.base_path;
  const linking = {
    db,
    vault,
    providers: deps.providers ?? providers,
    egress: {
      network: openNetwork({ allow_nets: config.filestore_allow_nets ?? [] }),
      local_root: config.filestore_local_root,
    },
  };
  const operations = [
    ...resources.flatMap((resource) => resourceEndpoints(db, resource, base)),
    ...deviceConfigEndpoints(db, base),
    ...catalogueEndpoints(),
    ...apiKeyEndpoints(db, keyring, base),
    ...streamEndpoints(db, record),
    ...mqttDeviceEndpoints(db),
    ...linkedStorageEndpoints(linking, config.public_url + base + linksPath),
  ];

  app.disable('x-powered-by').disable('etag').set('query parser', false).set('env', 'production');
  const entered = [admissionControl(), metrics.measure];
  const told = [accessLog(config.log_format, writeLine), securityHeaders(config.public_url)];
  const crossing = corsMiddleware(config.cors_origins, config.api_key_headers);
  const known = [authenticate(keyring, config.api_key_headers, clock), rateLimiter(config.rate_limit_per_minute)];
  const failure = errorHandler(log);
  const steps = [...entered, ...told, crossing, ...known];
  server.on('request', ahead(app, { base, operations, clock, steps, failure }));

  app.use(entered);
  // before the access log: the addresses hold a secret
  const { mqtt_auth_secret: secret, mqtt_bridges: bridges } = config;
  app.use(byHead(new Map([['mqtt-auth', mqttAuthRouter({ secret, bridges, db, keyring, enabledAbove, log, clock })]])));
  app.use(told);
  const about = openApiDocument(operations, {
    url: config.public_url,
    base_path: base,
    key_headers: config.api_key_headers,
    version,
  });
  const [state, reference] = [healthRoutes(db, metrics), docsRouter(about)];
  app.use(
    byHead(
      new Map([
        ['healthz', state],
        ['readyz', state],
        ['metrics', state],
        ['openapi.json', reference],
        ['docs', reference],
      ]),
    ),
  );

  const service = Router({ caseSensitive: true });
  service.use(decodablePath, crossing, optionsOf(operations));
  service.use(byHead(new Map([['external', fileLinkRouter(linking, clock)]])));
  // after OPTIONS, which a router that has a path answers for it
  service.use(unauthorizedBodies(operations));
  service.use(known);
  service.use(mount(operations, clock));
  app.use(base === '' ? '/' : base, service);
  app.use(() => {
    throw new AppError('notFound');
  });
  // the second is for what fails although it was answered already, being late
  app.use(failure, failure);
  return { operations, keyring, enabledAbove, record };
}
