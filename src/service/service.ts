import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { removeOldAlarms } from '../alarms/alarms.js';
import { startAlarmScans } from '../alarms/scans.js';
import { startAlarmWatch } from '../alarms/watch.js';
import { removeOldCommands, startCommandExpiry } from '../commands/expiry.js';
import { queueCommands } from '../commands/many.js';
import { type Config, formatOrigin } from '../config.js';
import type { Database, Log } from '../db/database.js';
import { type LeasedJob, startPeriodicJob, type Turn } from '../db/leased-job.js';
import { removeUnusedContents } from '../device-configs/contents.js';
import { selectConfigs, storeConfigs } from '../device-configs/many.js';
import { beginLog, startLogReader } from '../events/log-reader.js';
import { startStatusWatch } from '../events/status-watch.js';
import { removeEventsBefore } from '../events/store.js';
import { sealedStorages } from '../file-storage/linked.js';
import { listen, openServer } from '../http/server.js';
import { openTlsFiles, type TlsFiles } from '../http/tls-files.js';
import { silentLog } from '../lib/log.js';
import { awaitLater } from '../lib/promises.js';
import { openVault, type Vault } from '../lib/vault.js';
import { version } from '../lib/version.js';
import { startFleetCounts } from '../metrics/fleet-counts.js';
import { createMetrics, type Metrics, type ShareMetrics } from '../metrics/metrics.js';
import { Broker } from '../mqtt/broker.js';
import { createPasswordVerifier } from '../mqtt/login/passwords.js';
import { openTunnel } from '../mqtt/protocol/websocket.js';
import type { ShareRevocations } from '../objects/api-keys.js';
import { createBootstrapKey } from '../objects/api-keys.js';
import { finishChanges } from '../objects/bulk/journaled-change.js';
import { openStore, type Store, type StoreOptions } from '../objects/context.js';
import { startDeferral } from '../objects/receipts/deferred-receipts.js';
import { saveLostReceipts } from '../objects/receipts/lost-receipts.js';
import { finishRemovals, replayCompleted } from '../objects/tree/cascade-delete.js';
import { waitForJournaled } from '../objects/tree/journal.js';
import { finishMoves } from '../objects/tree/moves.js';
import { startValueFills, startValueReviews } from '../objects/values/jobs.js';
import { countUnderOtherKey } from '../objects/write/sealed-values.js';
import { startStreamRetention } from '../streams/retention.js';
import { startSummaries } from '../summaries/job.js';
import { startDeliverer } from '../webhooks/deliverer.js';
import { sealedWebhooks } from '../webhooks/secrets.js';
import { type App, type AppDeps, createApp } from './app.js';
import { indexes, migrate } from './migrations.js';

/** Leaves time to end within 10 s of SIGTERM. */
const drain_limit_ms = 8000;
/** The port opens when requests can be answered, at the latest after this time. */
const first_attempt_limit_ms = 5000;
/** A connection on which nothing moves is closed after this time or twice as long: Node looks once per period. */
const stalled_connection_ms = 20_000;
const max_connections = 10_000;
/** Vite writes it beside the compiled service. */
const builtConsole = fileURLToPath(new URL('../console', import.meta.url));

/** Servers of requests: one process or several. */
export interface Running {
  url: string;
  /** Serves on for SHUTDOWN_DELAY_S, then stops accepting and finishes what is in flight (10 s at most). */
  stop(): Promise<void>;
  /** Reads the files of TLS again. */
  reloadFiles(): Promise<void>;
}

/** One process of the service. */
export interface RunningProcess extends Running {
  app: App;
  server: Server;
  store: Store;
}

/** Parts that tests replace. */
type Replaceable = Pick<AppDeps, 'clock' | 'writeLine' | 'console_dir' | 'providers' | 'answer_limit_ms'> &
  Pick<StoreOptions, 'countCacheThreshold' | 'max_selected'>;

export interface StartOptions extends Partial<Replaceable>, Pick<StoreOptions, 'isExclusive'> {
  config: Config;
  uri: string;
  secret_key: string;
  log: Log;
  print: (line: string) => void;
  /** The work in the background; default: all. */
  jobs?: readonly JobName[];
  /** In a worker: shares the metrics with the primary process, which has checked the ports. */
  share?: ShareMetrics;
  /** In a worker: shares the revocation of keys with the others. */
  shareRevocations?: ShareRevocations;
  /** In a worker: another worker runs the MQTT broker. */
  isBrokerElsewhere?: boolean;
}

/**
 * Starts one process of the service (reference/configuration.md#start). With an unreachable database it listens all the
 * same, and becomes ready when the database comes. @throws StartError for a taken port
 */
export async function startService(options: StartOptions): Promise<RunningProcess> {
  const { config, uri, secret_key, log, print, share, shareRevocations, isBrokerElsewhere = false } = options;
  const { clock = Date.now, writeLine = (line: string) => process.stdout.write(line) } = options;
  if (share === undefined) await assertPortsFree(config);
  const tls = await openTlsFiles(config, isBrokerElsewhere ? silentLog : log, clock);
  const limits = { headersTimeout: 10_000, requestTimeout: 0, keepAliveTimeout: 65_000 };
  const { server, express } = openServer(limits, tls);
  server.maxConnections = max_connections;
  server.timeout = stalled_connection_ms;
  let isServing = false;
  const readState = () => {
    const { isReady, ...state } = db.readState();
    return { ...state, isReady: isReady && isServing };
  };
  const metrics = createMetrics({ version, readState, share, readCertificateTime: tls?.readSecondsLeft });
  const vault = openVault(secret_key);
  const maintenance = createMaintenance({ config, vault, log, clock, print });
  const { countCacheThreshold, max_selected, isExclusive = false } = options;
  const data = { upgrade: migrate, indexes, isExclusive };
  const store = openStore({ uri, log, maintenance, ...data, pool: metrics.pool, countCacheThreshold, max_selected });
  const { db } = store;
  const isReady = async () => isServing && (await db.isReady());
  const { console_dir = config.console === 'on' ? builtConsole : undefined, providers, answer_limit_ms } = options;
  const app = createApp({
    ...{ server, express, config, console_dir, store, vault, log, metrics, clock, writeLine, isReady },
    ...{ shareRevocations, providers, answer_limit_ms },
  });
  const { connections } = app;
  await Promise.race([db.attempted, sleep(first_attempt_limit_ms, undefined, { ref: false })]).catch(closeAndThrow(db));
  const port = await listen(server, config).catch(closeAndThrow(db));
  const deps: ServiceDeps = { config, tls, store, db, app, log, metrics, clock };
  const broker = await openBroker(deps, isBrokerElsewhere).catch(closeAndThrow(db));
  if (broker !== undefined) connections.acceptWebSockets(broker.upgrade);
  const bridge = await openBridge(deps);
  const { jobs: wanted } = options;
  const starters = Object.entries(prepareJobs(deps)).filter(([name]) => wanted?.includes(name as JobName) ?? true);
  const jobs = starters.map(([, start]) => start());

  // all ports are open
  isServing = true;

  async function stop(): Promise<void> {
    isServing = false;
    tls?.close();
    connections.startDraining();
    await sleep(config.shutdown_delay_s * 1000);
    const jobsEnded = awaitLater(Promise.all(jobs.map((job) => job.stop())));
    await Promise.all([app.live.close(), connections.close(drain_limit_ms), broker?.close(), bridge?.stop()]);
    await app.streamRate.stop();
    await db.close(jobsEnded);
  }
  let stopping: Promise<void> | undefined;
  return {
    ...{ app, server, store, url: formatOrigin(config, port) },
    reloadFiles: async () => tls?.reload(),
    stop() {
      stopping ??= awaitLater(stop());
      return stopping;
    },
  };
}

function closeAndThrow(db: Database): (error: unknown) => Promise<never> {
  return async (error) => {
    await db.close();
    throw error;
  };
}

interface ServiceDeps {
  config: Config;
  tls: TlsFiles | undefined;
  store: Store;
  db: Database;
  app: App;
  log: Log;
  metrics: Metrics;
  clock: () => number;
}

type Mqtt = Pick<Broker, 'upgrade'> & { close(): void | Promise<void> };

/** Starts the MQTT broker unless another process runs it. @throws StartError for a taken port */
async function openBroker(
  { config, tls, app, metrics, ...rest }: ServiceDeps,
  isBrokerElsewhere: boolean,
): Promise<Mqtt | undefined> {
  const { host, mqtt_port, mqtts_port } = config;
  const port = mqtt_port ?? mqtts_port;
  if (port === undefined) return undefined;
  if (isBrokerElsewhere) return openTunnel({ host, port, isSecure: mqtt_port === undefined }, config.trusted_proxies);
  const verify = await createPasswordVerifier(rest.clock);
  const { ingest, link, areAncestorsEnabled, keyring } = app;
  const broker = new Broker({
    ...rest,
    ingest,
    link,
    areAncestorsEnabled,
    keyring,
    verify,
    metrics: metrics.mqtt,
    trusted_proxies: config.trusted_proxies,
  });
  try {
    if (mqtt_port !== undefined) await broker.listen(host, mqtt_port);
    if (mqtts_port !== undefined) await broker.listen(host, mqtts_port, tls);
    return broker;
  } catch (error) {
    await broker.close();
    throw error;
  }
}

/** Starts the bridge to the brokers of MQTT_BRIDGE_URL (reference/mqtt.md#external-brokers). */
async function openBridge({ config, app, metrics, ...rest }: ServiceDeps): Promise<LeasedJob | undefined> {
  const { mqtt_bridge_url: bridges, mqtt_auth_secret } = config;
  if (bridges.length === 0) return undefined;
  // loads an MQTT client, a tenth of what a start loads
  const { startBridge } = await import('../mqtt/external/bridge.js');
  const { ingest, keyring } = app;
  const rabbitmq = mqtt_auth_secret !== undefined;
  return startBridge({ ...rest, bridges, rabbitmq, ingest, keyring, metrics: metrics.mqtt });
}

interface MaintenanceDeps extends Pick<ServiceDeps, 'config' | 'log' | 'clock'> {
  vault: Vault;
  print: StartOptions['print'];
}

/** Prepares the work in the background; each job but `deferral` runs on one instance at a time. */
function prepareJobs(deps: ServiceDeps) {
  const { config, store, db, app, log, metrics, clock } = deps;
  return {
    webhooks: () => startDeliverer({ ...app.webhookSender, db, costly: store.costly, log, metrics: metrics.webhooks }),
    retention: () => startRetention(deps),
    streamRetention: () =>
      startStreamRetention({
        days: { streams: config.stream_retention_days, summaries: config.summary_retention_days },
        db,
        log,
        clock,
      }),
    summaries: () => startSummaries({ db, log, clock, metrics: metrics.summaries }),
    deferral: () => startDeferral(db, store.deferred, log),
    replays: () => startReplays(deps),
    eventLog: () => startLogReader({ db, log, metrics: metrics.events }),
    statusWatch: () => startStatusWatch({ db, log, clock }),
    commandExpiry: () => startCommandExpiry({ db, log, clock, metrics: metrics.commands }),
    alarmWatch: () => startAlarmWatch({ ...app.evaluation, log, metrics: metrics.alarms }),
    alarmScans: () => startAlarmScans({ ...app.evaluation, log }),
    valueReviews: () => startValueReviews({ db, log, clock }),
    valueFills: () => startValueFills({ db, log, clock }),
    fleetCounts: () => startFleetCounts({ db, log, clock, report: metrics.fleet }),
  } satisfies Record<string, () => LeasedJob>;
}

export type JobName = keyof ReturnType<typeof prepareJobs>;

const day_ms = 86_400_000;
const retention_period_ms = 60_000;

/** Deletes old events, alarms and commands, and contents without a file, every minute. */
function startRetention({ config, db, log, clock }: ServiceDeps): LeasedJob {
  const { event_retention_days: days } = config;
  async function work(): Promise<void> {
    if (days !== undefined) await removeEventsBefore(db, clock() - days * day_ms);
    await removeOldAlarms(db, clock() / 1000);
    await removeOldCommands(db, clock() / 1000);
    await removeUnusedContents(db, clock() / 1000);
  }
  const period_ms = retention_period_ms;
  return startPeriodicJob({ db, log, name: 'retention', period_ms, mayRun: db.isClockRight, work });
}

const replay_period_ms = 3000;

/**
 * Replays completed removals on one instance: not in the maintenance, because after a failover readiness would wait for it.
 */
function startReplays({ store, db, log, clock }: ServiceDeps): LeasedJob {
  const work = ({ isLeaseHeld }: Turn) => replayCompleted(store, clock(), isLeaseHeld);
  return startPeriodicJob({ db, log, name: 'removal-replay', period_ms: replay_period_ms, work });
}

/** Creates the maintenance, which runs before the service is ready and then every 10 s. */
function createMaintenance({
  config,
  vault,
  log,
  clock,
  print,
}: MaintenanceDeps): (store: Store, stopped: AbortSignal) => Promise<void> {
  let isInitialized = false;
  return async (store, signal) => {
    const { db } = store;
    await finishChanges(store, [queueCommands, storeConfigs, selectConfigs], clock());
    await finishMoves(store);
    await finishRemovals(store);
    if (!db.readState().isReady) await store.deferred.store();
    await saveLostReceipts(db);
    await waitForJournaled(store, signal);
    if (isInitialized) return;
    await replayCompleted(store, clock());
    await beginLog(db);
    isInitialized = true;
    await warnOfOtherKey({ db, vault, log });
    const key = await createBootstrapKey(db, config.bootstrap_api_key, Math.floor(clock() / 1000));
    if (key === undefined) return;
    const shown = config.bootstrap_api_key === undefined ? `, shown only this once: ${key}` : ' is BOOTSTRAP_API_KEY';
    print(`API key of user admin of account demo${shown}`);
  };
}

/** Logs how many stored secrets a changed SECRET_KEY has made unreadable. */
async function warnOfOtherKey({ db, vault, log }: { db: Database; vault: Vault; log: Log }): Promise<void> {
  const storages = await countUnderOtherKey(db, vault, sealedStorages);
  const webhooks = await countUnderOtherKey(db, vault, sealedWebhooks);
  if (storages > 0)
    log.error({ count: storages }, 'linked storages are encrypted under another SECRET_KEY and cannot be opened');
  if (webhooks > 0)
    log.error({ count: webhooks }, 'secrets of webhooks are encrypted under another SECRET_KEY; nothing is sent there');
}

/**
 * Reports a taken port before anything else is started.
 * @returns the HTTP port, a free one for 0 @throws StartError naming PORT, MQTT_PORT or MQTTS_PORT, and HOST
 */
export async function assertPortsFree({
  host,
  port,
  mqtt_port,
  mqtts_port,
}: Pick<Config, 'host' | 'port' | 'mqtt_port' | 'mqtts_port'>): Promise<number> {
  const tryPort = async (candidate: number, variable: string) => {
    const server = createServer();
    const found = await listen(server, { host, port: candidate }, variable);
    await once(server.close(), 'close');
    return found;
  };
  const found = await tryPort(port, 'PORT');
  if (mqtt_port !== undefined) await tryPort(mqtt_port, 'MQTT_PORT');
  if (mqtts_port !== undefined) await tryPort(mqtts_port, 'MQTTS_PORT');
  return found;
}
