import { once } from 'node:events';
import type { Server } from 'node:http';
import { type App, createApp } from './app.js';
import { type Config, urlHost } from './config.js';
import type { Database, Log } from './db/database.js';
import { StartError } from './errors.js';
import { warnOfOtherKeys } from './file-storage/linked.js';
import { openVault, type Vault } from './file-storage/vault.js';
import { createMetrics, type Metrics } from './http/metrics.js';
import { openServer } from './http/server.js';
import { type Bridge, startBridge } from './mqtt/bridge.js';
import { type Broker, startBroker } from './mqtt/broker.js';
import { createPasswordVerifier } from './mqtt/passwords.js';
import { openTunnel } from './mqtt/websocket.js';
import { createBootstrapKey } from './repositories/api-keys.js';
import { finishRemovals } from './repositories/cascade-delete.js';
import { openStore, type Store } from './repositories/context.js';
import { migrate } from './repositories/migrations.js';
import { removeStreamsBefore } from './repositories/streams.js';

const drain_limit_ms = 10_000;

export interface Running {
  url: string;
  /** Stops accepting, finishes what is in flight (10 s at most), closes the connections to the database. */
  stop(): Promise<void>;
}

interface Options {
  config: Config;
  uri: string;
  secret_key: string;
  log: Log;
  print: (line: string) => void;
  /** Where `/metrics` comes from if not from this process alone. */
  collect?: () => Promise<string>;
}

/** One process of the service on a database that is there or yet to come. @throws StartError for a taken port */
export async function startService({ config, uri, secret_key, log, print, collect }: Options): Promise<Running> {
  const clock = Date.now;
  const { server, express } = openServer({ headersTimeout: 10_000, requestTimeout: 60_000, keepAliveTimeout: 65_000 });
  server.maxConnections = 10_000;
  // a start that fails for its port leaves the database as it was
  await listen(server, config);
  const metrics = createMetrics(collect);
  const vault = openVault(secret_key);
  const store = openStore({ uri, log, maintenance: createMaintenance({ config, vault, log, clock, print }) });
  const { db } = store;
  const writeLine = (line: string) => process.stdout.write(line);
  const app = createApp({ server, express, config, store, vault, log, metrics, clock, writeLine });
  const broker = await openBroker({ config, db, app, log, metrics, clock }).catch(async (error: unknown) => {
    await Promise.all([drain(server), db.close()]);
    throw error;
  });
  if (broker !== undefined) server.on('upgrade', broker.upgrade);
  const bridge = openBridge({ config, db, app, log, metrics, clock });
  const retention = startRetentionJob({ config, db, log, clock });
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : config.port;
  let stopping: Promise<void> | undefined;
  return {
    url: `http://${urlHost(config.host)}:${port}`,
    stop() {
      retention?.stop();
      stopping ??= Promise.all([drain(server), broker?.close(), bridge?.stop()]).then(() => db.close());
      return stopping;
    },
  };
}

interface ServiceDeps {
  config: Config;
  db: Database;
  app: App;
  log: Log;
  metrics: Metrics;
  clock: () => number;
}

type Mqtt = Pick<Broker, 'upgrade'> & { close(): void | Promise<void> };

/** The embedded MQTT broker on MQTT_PORT (contract 9), or the way to it where another process has it. @throws StartError for a taken port */
async function openBroker({ config, app, metrics, ...rest }: ServiceDeps): Promise<Mqtt | undefined> {
  if (config.mqtt_port === undefined) return undefined;
  if (config.mqtt_in_other_worker) return openTunnel(config.host, config.mqtt_port);
  const verify = await createPasswordVerifier(rest.clock);
  const { ingest: record, areAncestorsEnabled: enabledAbove, keyring } = app;
  const broker = await startBroker({ ...rest, record, enabledAbove, keyring, verify, metrics: metrics.mqtt });
  try {
    await broker.listen(config.host, config.mqtt_port);
    return broker;
  } catch (error) {
    await broker.close();
    throw error;
  }
}

/** Stores what external brokers have, where MQTT_BRIDGE_URL names some. */
function openBridge({ config, app, metrics, ...rest }: ServiceDeps): Bridge | undefined {
  const { mqtt_bridges: bridges, mqtt_auth_secret } = config;
  if (bridges.length === 0) return undefined;
  const { ingest, keyring } = app;
  const rabbitmq = mqtt_auth_secret !== undefined;
  return startBridge({ ...rest, bridges, rabbitmq, record: ingest, keyring, metrics: metrics.mqtt });
}

interface MaintenanceDeps extends Pick<ServiceDeps, 'config' | 'log' | 'clock'> {
  vault: Vault;
  print: Options['print'];
}

const day_ms = 86_400_000;
const retention_period_ms = 60_000;

/** Removes streams older than STREAM_RETENTION_DAYS, every minute; apart from housekeeping, which must be quick. */
function startRetentionJob({
  config,
  db,
  log,
  clock,
}: Pick<ServiceDeps, 'config' | 'db' | 'log' | 'clock'>): { stop(): void } | undefined {
  const { stream_retention_days: days } = config;
  if (days === undefined) return undefined;
  const timer = setInterval(() => {
    removeStreamsBefore(db, clock() - days * day_ms).catch((error: unknown) => {
      log.warn({ err: error }, 'old streams could not be removed');
    });
  }, retention_period_ms);
  return { stop: () => clearInterval(timer) };
}

/** Creates the work that is done before the service is ready, and again every 10 s. */
function createMaintenance({ config, vault, log, clock, print }: MaintenanceDeps): (store: Store) => Promise<void> {
  let isInitialized = false;
  return async (store) => {
    const { db } = store;
    await finishRemovals(store, clock());
    if (isInitialized) return;
    await migrate(db);
    isInitialized = true;
    await warnOfOtherKeys({ db, vault }, log);
    const key = await createBootstrapKey(db, config.bootstrap_api_key, Math.floor(clock() / 1000));
    if (key === undefined) return;
    const shown = config.bootstrap_api_key === undefined ? `, shown only this once: ${key}` : ' is BOOTSTRAP_API_KEY';
    print(`API key of user admin of account demo${shown}`);
  };
}

/** Takes a port. @throws StartError naming `variable` and HOST */
export async function listen(
  server: Server,
  { host, port }: Pick<Config, 'host' | 'port'>,
  variable = 'PORT',
): Promise<void> {
  server.listen(port, host);
  try {
    await once(server, 'listening');
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    throw new StartError(
      code === 'EADDRINUSE'
        ? `${variable} ${port} of HOST ${host} is taken`
        : `cannot listen on HOST ${host}, ${variable} ${port}: ${message}`,
    );
  }
}

async function drain(server: Server): Promise<void> {
  const closed = new Promise((resolve) => server.close(resolve));
  // a connection whose answer is finished after close() counts as idle, but nothing closes it
  const idle = setInterval(() => server.closeIdleConnections(), 50);
  const limit = setTimeout(() => server.closeAllConnections(), drain_limit_ms);
  await closed;
  clearInterval(idle);
  clearTimeout(limit);
}
