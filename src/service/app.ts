import type { Server } from 'node:http';
import type { Express } from 'express';
import { alarmEndpoints } from '../alarms/endpoints.js';
import { createEvaluation } from '../alarms/evaluate.js';
import { createStreamObserver } from '../alarms/observe.js';
import { createRuleSets } from '../alarms/rule-sets.js';
import { createSentMarker } from '../commands/delivery.js';
import { commandEndpoints } from '../commands/endpoints.js';
import { createOpenCommands } from '../commands/open-commands.js';
import { createCommandTail } from '../commands/tail.js';
import type { Config } from '../config.js';
import type { Log } from '../db/database.js';
import { deviceConfigEndpoints } from '../device-configs/endpoints.js';
import { createDesiredStates } from '../device-state/desired.js';
import { stateEndpoints } from '../device-state/endpoints.js';
import { createStateWriter } from '../device-state/store.js';
import { createStateTail } from '../device-state/tail.js';
import { openNetwork } from '../egress/network.js';
import { createResolver } from '../egress/resolver.js';
import { createEventFilter } from '../events/device-filter.js';
import { eventEndpoints, liveEventEndpoints } from '../events/endpoints.js';
import { createEventSource } from '../events/event-tail.js';
import { openStorageNetwork } from '../file-storage/egress.js';
import { linkedStorageEndpoints } from '../file-storage/endpoints.js';
import { fileLinkRouter, linksPath } from '../file-storage/link-endpoint.js';
import type { Provider } from '../file-storage/providers/provider.js';
import { providers } from '../file-storage/providers/providers.js';
import { accessLog } from '../http/access-log.js';
import { createAdmission } from '../http/admission.js';
import { apiKeyEndpoints, selfEndpoints } from '../http/api-keys.js';
import { authenticate } from '../http/authenticate.js';
import { bulkEndpoints } from '../http/bulk-endpoints.js';
import { catalogueEndpoints } from '../http/catalogues.js';
import { chain, forPrefix } from '../http/chain.js';
import { checkHost } from '../http/check-host.js';
import { createClientFinder } from '../http/client-address.js';
import { compressAnswers } from '../http/compress.js';
import { trackConnections } from '../http/connections.js';
import { serveConsole } from '../http/console.js';
import type { EndpointDeps } from '../http/context.js';
import { createCors } from '../http/cors.js';
import { countEndpoint } from '../http/count-endpoint.js';
import { callEndpoint, matchRoute, rejectUnknownPath } from '../http/dispatch.js';
import { docsRoutes } from '../http/docs.js';
import { errorHandler } from '../http/error-handler.js';
import { healthRoutes } from '../http/health.js';
import { createLiveFeeds } from '../http/live/live-feeds.js';
import { createFeedSender } from '../http/live/send-feed.js';
import { requestMeter } from '../http/measure-requests.js';
import { servePublicRoutes } from '../http/public-routes.js';
import { rateLimiter } from '../http/rate-limit.js';
import { resourceEndpoints } from '../http/resource-endpoints.js';
import { createRouter } from '../http/router.js';
import { securityHeaders } from '../http/security-headers.js';
import { findPort } from '../http/server.js';
import { createYieldQueue } from '../http/yield-queue.js';
import { importEndpoints } from '../import/endpoint.js';
import type { Vault } from '../lib/vault.js';
import { version } from '../lib/version.js';
import type { Metrics } from '../metrics/metrics.js';
import { mqttDeviceEndpoints } from '../mqtt/endpoints.js';
import { mqttAuthRouter } from '../mqtt/external/auth-endpoint.js';
import type { DeviceLink } from '../mqtt/sessions/device-link.js';
import { openKeyring, type ShareRevocations } from '../objects/api-keys.js';
import type { Store } from '../objects/context.js';
import { createEnabledCache } from '../objects/tree/ancestors.js';
import { openTokenLogin } from '../oidc/token-login.js';
import { resources, savedFilter } from '../resources/index.js';
import { buildOpenApiDocument } from '../schema/openapi/document.js';
import { streamEndpoints } from '../streams/endpoints.js';
import { createIngest } from '../streams/ingest.js';
import { liveStreamEndpoints } from '../streams/live-endpoints.js';
import { seriesEndpoints } from '../streams/series-endpoints.js';
import { createStreamRate, streamRateEndpoints } from '../streams/stream-rate.js';
import { createStreamSource } from '../streams/stream-tail.js';
import type { SenderDeps } from '../webhooks/attempt.js';
import { createDescriber } from '../webhooks/describe.js';
import { webhookEndpoints } from '../webhooks/endpoints.js';
import { openMailer } from '../webhooks/mailer.js';

export interface AppDeps {
  /** Created by `openServer`, without any handler. */
  server: Server;
  express: Express;
  config: Config;
  /** Folder of the built console; absent: neither console nor start page. */
  console_dir?: string | undefined;
  /** Storage providers; default: all. */
  providers?: readonly Provider[] | undefined;
  vault: Vault;
  store: Store;
  log: Log;
  metrics: Metrics;
  /** Epoch milliseconds. */
  clock: () => number;
  /** Time after which a request is answered 5031; default: that of the reference. */
  answer_limit_ms?: number | undefined;
  /** Answers `/readyz`; default: the readiness of the database. */
  isReady?: () => Promise<boolean>;
  /** Writes lines of the access log. */
  writeLine: (line: string) => void;
  /** In a worker. */
  shareRevocations?: ShareRevocations | undefined;
}

/** The endpoints, and the state that the MQTT broker shares with them. */
export type App = ReturnType<typeof createApp>;

/**
 * Builds the HTTP interface on `server`. The order of the middleware is that of reference/requests.md#order-of-checks;
 * the interface itself is one route table below {base_url}.
 */
export function createApp(deps: AppDeps) {
  const { server, express: app, config, store, vault, log, metrics, clock, writeLine } = deps;
  const { db } = store;
  const { isReady = db.isReady } = deps;
  const { base_path } = config;
  const keyring = openKeyring(db, store.hierarchy.of, deps.shareRevocations);
  const areAncestorsEnabled = createEnabledCache(store, clock);
  const changeState = createStateWriter(db, metrics.states);
  const ruleSets = createRuleSets(db);
  const evaluation = createEvaluation(store, clock);
  const prepareEvaluation = createStreamObserver({ ...evaluation, ruleSets, metrics: metrics.alarms });
  const { deferred } = store;
  const storeStreams = createIngest({
    ...{ db, deferred, areAncestorsEnabled, metrics: metrics.telemetry, clock, prepareEvaluation },
  });
  const streamRate = createStreamRate(db, clock);
  const ingest: typeof storeStreams = async (submission) => {
    const stored = await storeStreams(submission);
    const count = stored.filter(Boolean).length;
    if (submission.isDryRun !== true) streamRate.add(submission.account, count, submission.now);
    return stored;
  };
  const eventSource = createEventSource(db, log);
  const streamSource = createStreamSource(store, log);
  const commandTail = createCommandTail(db, log);
  const markSent = createSentMarker(db, clock, metrics.commands);
  const stateTail = createStateTail(db, log);
  const tails = [eventSource.tail, streamSource.tail, commandTail, stateTail];
  const link: DeviceLink = {
    findDevice: (account, id) => store.loader('devices').locate({ account, limit: undefined }, id),
    desiredStates: createDesiredStates(db),
    openCommands: createOpenCommands(db, clock),
    ...{ changeState, stateTail, commandTail, markSent, metrics: metrics.commands },
  };
  const live = createLiveFeeds({ db, tails, clock, log, metrics: metrics.live });
  const sendFeed = createFeedSender(live, log);
  const resolve = createResolver();
  const storageDeps = {
    db,
    vault,
    providers: deps.providers ?? providers,
    egress: {
      network: openStorageNetwork({ allow_nets: config.filestore_allow_nets, resolve }),
      local_root: config.filestore_local_root,
    },
  };
  const isSelectedByFilter = createEventFilter(store);
  // the port that PORT 0 picks is known once the server listens
  const formatPublicUrl = () => config.public_url.replace(/:0$/, () => `:${findPort(server) ?? 0}`);
  const consoleUrl = () => (deps.console_dir === undefined ? undefined : `${formatPublicUrl()}/console`);
  const { smtp_url, smtp_from } = config;
  const webhookSender: SenderDeps = {
    describe: createDescriber(store, consoleUrl),
    consoleUrl,
    mailer: smtp_url && smtp_from && openMailer(smtp_url, smtp_from),
    isOn: config.webhooks === 'on',
    vault,
    network: openNetwork({ allow_nets: config.webhook_allow_nets, variable: 'WEBHOOK_ALLOW_NETS', resolve }),
    clock,
    isSelectedByFilter,
  };
  const endpointDeps: EndpointDeps = { store, base_path, yieldTurn: createYieldQueue() };
  const admission = createAdmission(deps.answer_limit_ms);
  const operations = [
    ...resourceEndpoints(savedFilter),
    ...resources.flatMap((resource) => [
      countEndpoint(resource),
      ...resourceEndpoints(resource),
      ...bulkEndpoints(resource),
    ]),
    ...stateEndpoints(changeState),
    ...commandEndpoints({ tail: commandTail, markSent, sendFeed, clock, metrics: metrics.commands }),
    ...deviceConfigEndpoints(changeState),
    ...catalogueEndpoints(),
    ...apiKeyEndpoints(endpointDeps, keyring),
    ...selfEndpoints(),
    ...streamEndpoints(ingest),
    ...streamRateEndpoints(streamRate),
    ...seriesEndpoints(),
    ...eventEndpoints(),
    ...liveEventEndpoints({ source: eventSource, isSelectedByFilter }, sendFeed),
    ...liveStreamEndpoints(streamSource, sendFeed),
    ...webhookEndpoints(webhookSender),
    ...alarmEndpoints(ruleSets),
    ...importEndpoints({ ...endpointDeps, log, ingest }),
    ...mqttDeviceEndpoints(),
    ...linkedStorageEndpoints(endpointDeps, storageDeps, () => formatPublicUrl() + base_path + linksPath),
  ];
  const buildDocument = () =>
    buildOpenApiDocument(operations, {
      url: formatPublicUrl(),
      base_path,
      key_headers: config.api_key_headers,
      version,
    });

  app
    .disable('x-powered-by')
    .disable('etag')
    .enable('case sensitive routing')
    .set('query parser', false)
    .set('env', 'production');
  const cors = createCors(config.cors_origins, config.api_key_headers);
  const { mqtt_auth_secret: secret, mqtt_bridge_url: bridges } = config;
  const authDeps = { secret, bridges, db, keyring, areAncestorsEnabled, log, metrics: metrics.mqtt, clock };
  app.use(
    chain(
      admission.begin,
      requestMeter(metrics.requests),
      // before the access log: its URLs hold a secret
      forPrefix('/mqtt-auth', mqttAuthRouter(authDeps)),
      accessLog(config, writeLine),
      compressAnswers(),
      securityHeaders(config.public_url),
      checkHost,
      cors.preflight,
      servePublicRoutes([...healthRoutes(isReady, metrics), ...docsRoutes(buildDocument)]),
      ...(deps.console_dir === undefined ? [] : [serveConsole(deps.console_dir, config)]),
    ),
  );
  app.use(
    base_path === '' ? '/' : base_path,
    chain(
      cors.share,
      (_request, _response, next) => {
        // while data is upgraded even unknown paths are refused (reference/configuration.md#start)
        store.db.assertUpgraded();
        next();
      },
      forPrefix(linksPath.slice(0, -1), fileLinkRouter(storageDeps, clock)),
      matchRoute(createRouter(operations)),
      authenticate(keyring, openTokenLogin(config, store.db, log), admission, config.api_key_headers, clock),
      rateLimiter(config.rate_limit_per_minute),
      callEndpoint(operations, endpointDeps, admission, clock),
    ),
  );
  app.use(rejectUnknownPath);
  // registered twice for handlers that fail after the timeout response
  const handleError = errorHandler(log, createClientFinder(config.trusted_proxies));
  app.use(handleError, handleError);
  const connections = trackConnections(server, app);
  return {
    ...{ operations, keyring, areAncestorsEnabled, ingest, streamRate, link, live, connections, webhookSender },
    evaluation: { ...evaluation, loadRules: ruleSets.load },
  };
}
