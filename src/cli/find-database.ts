import type { Config } from '../config.js';

/** The database of a tool. */
export interface ToolDatabase {
  uri: string;
  stop(): Promise<void>;
}

/** The log of tools, which print their own lines. */
export const silentLog = { info() {}, warn() {}, error() {} };
const printError = (line: string) => process.stderr.write(`${line}\n`);

/**
 * Finds MONGODB_URI or, if unset, the embedded database of DATA_DIR, started for the purpose if necessary.
 * @param mode `exclusive`: only if no service runs on DATA_DIR @throws StartError
 */
export async function findDatabase(
  { mongodb_uri, data_dir }: Pick<Config, 'mongodb_uri' | 'data_dir'>,
  mode: 'shared' | 'exclusive',
): Promise<ToolDatabase> {
  const stop = async () => undefined;
  if (mongodb_uri !== undefined) return { uri: mongodb_uri, stop };
  // not needed by --help and rejected options
  const { findEmbeddedUri, startEmbedded } = await import('../mongod/embedded.js');
  const runningUri = mode === 'shared' ? await findEmbeddedUri(data_dir) : undefined;
  if (runningUri !== undefined) return { uri: runningUri, stop };
  return startEmbedded({ dataDir: data_dir, env: process.env, log: silentLog, print: printError });
}
