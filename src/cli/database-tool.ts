import { Option } from 'commander';
import { readConfig } from '../config.js';
import { connectTool, type ToolConnection } from '../db/tool-connection.js';
import { StartError } from '../errors.js';
import { loadSecretKey } from '../mongod/secret-key.js';
import { type DatabaseMode, findDatabase } from './find-database.js';

/** The database of a tool, connected. */
export interface DatabaseWork {
  connection: ToolConnection;
  /** The value of the option; undefined where it is empty, as an unset variable. */
  passphrase: string | undefined;
  /** Returns SECRET_KEY, or that of DATA_DIR, which becomes `initial` if there is none. */
  findSecretKey(initial?: string): Promise<string | undefined>;
}

/** Creates the option `--passphrase`. */
export function createPassphraseOption(description: string): Option {
  return new Option('--passphrase <text>', description).env('BACKUP_PASSPHRASE');
}

/** Runs `work` on MONGODB_URI or DATA_DIR. A failure is printed in one line and sets the exit code to 1. */
export async function runOnDatabase(
  { tool, mode, passphrase }: { tool: string; mode: DatabaseMode; passphrase?: string },
  work: (database: DatabaseWork) => Promise<void>,
): Promise<void> {
  const closers: (() => Promise<void>)[] = [];
  let isInterrupted = false;
  // what is under way fails then, and cleans up
  const interrupt = () => {
    isInterrupted = true;
    closers[1]?.().catch(() => undefined);
  };
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, interrupt);
  try {
    // without MONGODB_URI the service needs no SECRET_KEY either
    const config = readConfig({ ...process.env, MONGODB_URI: undefined });
    const { mongodb_uri } = readConfig({ ...process.env, SECRET_KEY: process.env.SECRET_KEY || 'is not read here' });
    if (passphrase && mongodb_uri !== undefined && config.secret_key === undefined)
      throw new StartError('SECRET_KEY must be set for --passphrase where MONGODB_URI is');
    const { uri, stop } = await findDatabase({ ...config, mongodb_uri }, mode);
    closers.push(stop);
    const connection = await connectTool(uri).catch((error: Error) => {
      if (error instanceof StartError) throw error;
      const variable = mongodb_uri === undefined ? `DATA_DIR ${config.data_dir}` : 'MONGODB_URI';
      throw new StartError(`the database of ${variable} does not answer (${error.name})`);
    });
    closers.push(connection.close);
    if (isInterrupted) throw new StartError('interrupted');
    await work({
      connection,
      passphrase: passphrase || undefined,
      findSecretKey: async (initial) =>
        config.secret_key ?? (mongodb_uri === undefined ? await loadSecretKey(config.data_dir, initial) : undefined),
    });
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    process.stderr.write(`${tool}: ${isInterrupted ? 'interrupted' : message}\n`);
    process.exitCode = 1;
  } finally {
    for (const close of closers.toReversed()) await close();
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.off(signal, interrupt);
  }
}

/** Formats a length in bytes. */
export function formatBytes(bytes: number): string {
  return bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}
