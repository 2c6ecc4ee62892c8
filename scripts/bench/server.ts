import { mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import { type ServiceProcess, startServiceProcess } from '../support/service-process.js';

/** A measured server in its own process. */
export type Server = Pick<ServiceProcess, 'url' | 'pid' | 'stop'>;

interface Options {
  /** Directory for its log file. */
  folder: string;
  uri: string;
  key: string;
  /** The built checkout to run; default: the current directory. */
  checkout?: string;
  /** Default: any free port. */
  mqtt_port?: number;
}

const timeout_ms = 120_000;

/** Starts the built service with its default settings on free ports. */
export async function startService({ folder, uri, key, checkout = '.', mqtt_port = 0 }: Options): Promise<Server> {
  const { PATH, HOME } = process.env;
  const settings = {
    MONGODB_URI: uri,
    PORT: '0',
    MQTT_PORT: String(mqtt_port),
    SECRET_KEY: 'only-for-measurements',
    BOOTSTRAP_API_KEY: key,
  };
  const logFile = await createLogFile(folder, 'service');
  return startServiceProcess({ cwd: checkout, env: { PATH, HOME, ...settings }, logFile, timeout_ms });
}

/** Starts the bare HTTP server of baseline.ts, or the bare MQTT broker of mqtt-baseline.ts. */
export async function startBaseline(
  { folder, uri, mqtt_port = 0 }: Pick<Options, 'folder' | 'uri' | 'mqtt_port'>,
  program: 'baseline' | 'mqtt-baseline',
): Promise<Server> {
  const { PATH, HOME } = process.env;
  return startServiceProcess({
    entry: `dist/scripts/bench/${program}.js`,
    env: { PATH, HOME, MONGODB_URI: uri, MQTT_PORT: String(mqtt_port) },
    readyPath: '/',
    logFile: await createLogFile(folder, program),
    timeout_ms,
  });
}

async function createLogFile(folder: string, name: string): Promise<string> {
  return join(await mkdtemp(join(folder, `${name}-`)), 'output.log');
}
