import type { Server } from 'node:http';
import type { Express } from 'express';
import type { Config } from './config.js';
import type { Log } from './db/database.js';
import { openNetwork } from './egress/network.js';
import { createLiveFeeds, type LiveFeeds } from './events/live-feeds.js';
import { openStorageNetwork } from './file-storage/egress.js';
import type { Provider } from './file-storage/provider.js';
import { providers } from './file-storage/providers.js';
import { accessLog } from './http/access-log.js';
import { createAdmission } from './http/admission.js';
import { apiKeyEndpoints } from './http/api-keys.js';
import { authenticate } from './http/authenticate.js';
import { bulkEndpoints } from './http/bulk-endpoints.js';
import { catalogueEndpoints } from './http/catalogues.js';
import { chain, forPrefix } from './http/chain.js';
import { checkHost } from './http/check-host.js';
import { compressAnswers } from './http/compress.js';
import { type Connections, trackConnections } from './http/connections.js';
import { serveConsole } from './http/console.js';
import type { Endpoint, EndpointDeps } from './http/context.js';
import { createCors } from './http/cors.js';
import { deviceConfigEndpoints } from './http/device-configs.js';
import { callEndpoint, matchRoute, rejectUnknownPath } from './http/dispatch.js';
import { docsRoutes } from './http/docs.js';
import { errorHandler } from './http/error-handler.js';
import { eventEndpoints } from './http/events.js';
import { fileLinkRouter, linksPath } from './http/file-links.js';
import { healthRoutes } from './http/health.js';
import { importEndpoints } from './http/import/endpoint.js';
import { linkedStorageEndpoints } from './http/linked-storage.js';
import { liveEndpoints } from './http/live.js';
import { requestMeter } from './http/measure-requests.js';
import { mqttAuthRouter } from './http/mqtt-auth.js';
import { mqttDeviceEndpoints } from './http/mqtt-devices.js';
import { servePublicRoutes } from './http/public-routes.js';
import { rateLimiter } from './http/rate-limit.js';
import { resourceEndpoints } from './http/resource-endpoints.js';
import { createRouter } from './http/router.js';
import { securityHeaders } from './http/security-headers.js';
import { seriesEndpoints } from './http/series.js';
import { streamEndpoints } from './http/streams.js';
import { webhookEndpoints } from './http/webhooks.js';
import { createYieldQueue } from './http/yield-queue.js';
import type { Metrics } from './metrics/metrics.js';
import { type Keyring, openKeyring } from './repositories/api-keys.js';
import type { Store } from './repositories/context.js';
import { resources } from './resources/index.js';
import { buildOpenApiDocument } from './schema/openapi/document.js';
import { type AreAncestorsEnabled, createEnabledCache } from './telemetry/enabled-cache.js';
import { createIngest, type Ingest } from './telemetry/ingest.js';
import type { Vault } from './vault.js';
import type { SenderDeps } from './webhooks/attempt.js';

/** Version of the service and its interface; a test compares it with package.json. */
export const version = '0.2.0';

export interface AppDeps {
  /** Created by `openServer`, without any handler. */
  server: Server;
  express: Express;
  config: Pick<
    Config,
    'base_path' | 'api_key_headers' | 'cors_origins' | 'rate_limit_per_minute' | 'log_format' | 'public_url'
  > &
    Partial<
      Pick<
        Config,
        | 'mqtt_auth_secret'
        | 'mqtt_bridges'
        | 'filestore_local_root'
        | 'filestore_allow_nets'
        | 'webhook_allow_nets'
        | 'console_tiles_url'
      >
    >;
  /** Folder of the built console; absent: neither console nor start page. */
  console_dir?: string | undefined;
  /** Storage providers; default: all. */
  providers?: readonly Provider[];
  vault: Vault;
  store: Store;
  log: Log;
  metrics: Metrics;
  /** Epoch milliseconds. */
  clock: () => number;
  /** Answers `/readyz`; default: the readiness of the database. */
  isReady?: () => Promise<boolean>;
  /** Writes lines of the access log. */
  writeLine: (line: string) => void;
}

/** The endpoints, and the state that the MQTT broker shares with them. */
export interface App {
  operations: readonly Endpoint[];
  keyring: Keyring;
  areAncestorsEnabled: AreAncestorsEnabled;
  ingest: Ingest;
  live: LiveFeeds;
  connections: Connections;
  /** Sends events to webhooks. */
  webhookSender: SenderDeps;
}

/**
 * Builds the HTTP interface on `server`. The order of the middleware is that of reference/requests.md#order-of-checks;
 * the interface itself is one route table below {base_url}.
 */
export function createApp(deps: AppDeps): App {
  const { server, express: app, config, store, vault, log, metrics, clock, writeLine } = deps;
  const { db } = store;
  const { isReady = db.isReady } = deps;
  const { base_path } = config;
  const keyring = openKeyring(db);
  const areAncestorsEnabled = createEnabledCache(store, clock);
  const ingest = createIngest(db, areAncestorsEnabled, metrics.telemetry);
  const live = createLiveFeeds({ store, clock, log, metrics: metrics.live });
  const storageDeps = {
    db,
    vault,
    providers: deps.providers ?? providers,
    egress: {
      network: openStorageNetwork({ allow_nets: config.filestore_allow_nets ?? [] }),
      local_root: config.filestore_local_root,
    },
  };
  const webhookSender: SenderDeps = {
    vault,
    network: openNetwork({ allow_nets: config.webhook_allow_nets ?? [], variable: 'WEBHOOK_ALLOW_NETS' }),
    clock,
  };
  const endpointDeps: EndpointDeps = { store, base_path, yieldTurn: createYieldQueue() };
  const admission = createAdmission();
  const operations = [
    ...resources.flatMap((resource) => [...resourceEndpoints(endpointDeps, resource), ...bulkEndpoints(resource)]),
    ...deviceConfigEndpoints(endpointDeps),
    ...catalogueEndpoints(),
    ...apiKeyEndpoints(endpointDeps, keyring),
    ...streamEndpoints(endpointDeps, ingest),
    ...seriesEndpoints(endpointDeps),
    ...eventEndpoints(endpointDeps),
    ...liveEndpoints(live, log),
    ...webhookEndpoints(endpointDeps, webhookSender),
    ...importEndpoints({ ...endpointDeps, admission, log }),
    ...mqttDeviceEndpoints(endpointDeps),
    ...linkedStorageEndpoints(endpointDeps, storageDeps, config.public_url + base_path + linksPath),
  ];
  const openapi = buildOpenApiDocument(operations, {
    url: config.public_url,
    base_path,
    key_headers: config.api_key_headers,
    version,
  });

  app.disable('x-powered-by').disable('etag').set('query parser', false).set('env', 'production');
  const cors = createCors(config.cors_origins, config.api_key_headers);
  const { mqtt_auth_secret: secret, mqtt_bridges: bridges } = config;
  const authDeps = { secret, bridges, db, keyring, enabledAbove: areAncestorsEnabled, log, clock };
  app.use(
    chain(
      admission.begin,
      requestMeter(metrics.requests),
      // before the access log: its URLs hold a secret
      forPrefix('/mqtt-auth', mqttAuthRouter(authDeps)),
      accessLog(config.log_format, writeLine),
      compressAnswers(),
      securityHeaders(config.public_url),
      checkHost,
      cors.preflight,
      servePublicRoutes([...healthRoutes(isReady, metrics), ...docsRoutes(openapi)]),
      ...(deps.console_dir === undefined
        ? []
        : [
            serveConsole({
              dir: deps.console_dir,
              public_url: config.public_url,
              tiles_url: config.console_tiles_url,
            }),
          ]),
    ),
  );
  app.use(
    base_path === '' ? '/' : base_path,
    chain(
      cors.share,
      forPrefix(linksPath.slice(0, -1), fileLinkRouter(storageDeps, clock)),
      matchRoute(createRouter(operations)),
      authenticate(keyring, admission, config.api_key_headers, clock),
      rateLimiter(config.rate_limit_per_minute),
      callEndpoint(endpointDeps, admission, clock),
    ),
  );
  app.use(rejectUnknownPath);
  // registered twice for handlers that fail after the timeout response
  const handleError = errorHandler(log);
  app.use(handleError, handleError);
  const connections = trackConnections(server, app);
  return { operations, keyring, areAncestorsEnabled, ingest, live, connections, webhookSender };
}
