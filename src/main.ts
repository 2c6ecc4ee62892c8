import cluster from 'node:cluster';
import { setFlagsFromString } from 'node:v8';
import { findMisspelledVariables, readConfig } from './config.js';
import { StartError } from './errors.js';
import { readTlsFiles } from './http/tls-files.js';
import { findEndOfLife } from './lib/end-of-life.js';
import { createLog } from './lib/log.js';
import { awaitLater } from './lib/promises.js';
import { startEmbedded } from './mongod/embedded.js';
import { loadSecretKey } from './mongod/secret-key.js';
import { type Running, startService } from './service/service.js';
import { isBrokerElsewhere, publishMetrics, publishRevocations, runWorkers } from './service/workers.js';

// V8 else moves new objects of some literals to old space if such objects lived long at the start, as requests of a burst do;
// what they refer to then lives until a full collection, which takes up to a quarter of the streams a second
setFlagsFromString('--no-allocation-site-pretenuring');

const say = (line: string) => process.stdout.write(`${line}\n`);

/** Starts database, then service, and stops them in reverse (reference/configuration.md#start, #stop). */
async function main(): Promise<void> {
  const config = readConfig(process.env);
  const log = createLog(config.log_level);
  const fail = (error: unknown) => {
    log.fatal({ err: error }, 'unforeseen failure, stopping');
    process.exit(1);
  };
  process.on('uncaughtException', fail);
  // by default Node prints its warnings between the lines of the log
  process.removeAllListeners('warning');
  process.on('warning', (warning) => log.warn({ name: warning.name, err: warning }, 'warning of Node.js'));
  const warnOfEndOfLife = (release: string) => {
    const since = findEndOfLife(release, Date.now());
    if (since !== undefined) log.warn({ release, since }, 'release without security updates; use a later one');
  };
  const closers: (() => Promise<void>)[] = [];
  let running: Running | undefined;
  // without TLS the signal ends the process, as that of a closed terminal does
  if (config.tls_cert_file !== undefined)
    process.on('SIGHUP', () => void running?.reloadFiles().catch((err) => log.error({ err }, 'TLS files not read')));
  const stop = onSignal(async () => {
    await starting.catch(() => undefined);
    for (const close of closers.toReversed()) await close();
    process.exit(0);
  }, fail);
  const starting = awaitLater(start());
  await starting;

  async function start(): Promise<void> {
    if (cluster.isWorker) {
      const { mongodb_uri: uri = '', secret_key = '' } = config;
      running = await startService({
        config,
        uri,
        secret_key,
        log,
        print: say,
        share: publishMetrics,
        shareRevocations: publishRevocations,
        isBrokerElsewhere: isBrokerElsewhere(),
      });
      closers.push(running.stop);
      return;
    }
    for (const { variable, similar } of findMisspelledVariables(process.env))
      log.warn({ variable, similar }, 'unknown environment variable resembles a known one');
    warnOfEndOfLife(`Node.js ${process.versions.node.split('.')[0]}`);
    // bad ones end the start before that of the database
    await readTlsFiles(config);
    const embedded =
      config.mongodb_uri === undefined
        ? await startEmbedded({ dataDir: config.data_dir, env: process.env, log, print: say })
        : undefined;
    if (embedded !== undefined) {
      closers.push(embedded.stop);
      warnOfEndOfLife(`MongoDB ${embedded.version.split('.').slice(0, 2).join('.')}`);
    }
    if (stop.aborted) return;
    try {
      const uri = embedded?.uri ?? config.mongodb_uri ?? '';
      const secret_key = config.secret_key ?? (await loadSecretKey(config.data_dir));
      running =
        config.workers === 1
          ? await startService({ config, uri, secret_key, log, print: say, isExclusive: embedded !== undefined })
          : await runWorkers({ config, env: { MONGODB_URI: uri, SECRET_KEY: secret_key }, log });
      closers.push(running.stop);
      say(`listening on ${running.url}`);
      if (config.console === 'on') say(`console: ${running.url}/console/`);
      say(`description of the interface: ${running.url}/docs/`);
    } catch (error) {
      await embedded?.stop();
      throw error;
    }
  }
}

/** Calls `stop` at the first SIGTERM or SIGINT; a group signal may come twice. */
function onSignal(stop: () => Promise<void>, fail: (error: unknown) => void): AbortSignal {
  const signalled = new AbortController();
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    process.on(signal, () => {
      if (signalled.signal.aborted) return;
      signalled.abort();
      stop().catch(fail);
    });
  }
  return signalled.signal;
}

main().catch((error: unknown) => {
  const { message, stack } = error instanceof Error ? error : new Error(String(error));
  process.stderr.write(`${error instanceof StartError ? message : stack}\n`);
  process.exit(1);
});
