import type { Config } from '../config.js';
import { StartError } from '../errors.js';
import { silentLog } from '../lib/log.js';
import { hasDatabase } from '../mongod/data-dir.js';

/** `existing`: refused if there is no database; `exclusive`: only if no service runs on DATA_DIR. */
export type DatabaseMode = 'existing' | 'shared' | 'exclusive';

const printError = (line: string) => process.stderr.write(`${line}\n`);

/**
 * Finds MONGODB_URI or, if unset, the embedded database of DATA_DIR, started for the purpose if necessary.
 * @throws StartError
 */
export async function findDatabase(
  { mongodb_uri, data_dir }: Pick<Config, 'mongodb_uri' | 'data_dir'>,
  mode: DatabaseMode,
): Promise<{ uri: string; stop(): Promise<void> }> {
  const stop = async () => undefined;
  if (mongodb_uri !== undefined) return { uri: mongodb_uri, stop };
  if (mode === 'existing' && !hasDatabase(data_dir)) throw new StartError(`DATA_DIR ${data_dir} has no database`);
  // not needed by --help and rejected options
  const { findEmbeddedUri, startEmbedded } = await import('../mongod/embedded.js');
  const runningUri = mode === 'exclusive' ? undefined : await findEmbeddedUri(data_dir);
  if (runningUri !== undefined) return { uri: runningUri, stop };
  return startEmbedded({ dataDir: data_dir, env: process.env, log: silentLog, print: printError });
}
