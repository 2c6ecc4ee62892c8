import { createHmac, randomBytes } from 'node:crypto';
import { chmod, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createAtomically } from '../lib/atomic-file.js';

/** A MongoDB user; `source` is the database that defines it. */
export interface Login {
  username: string;
  password: string;
  source: string;
}

/** The secrets of one data folder. */
export interface Credentials {
  /** Path of the file for `mongod --keyFile`, which turns authentication on. */
  keyFile: string;
  /** MongoDB's internal user: the key file defines its password, so it can log in before there are any users. */
  system: Login;
  /** The user of the service and of the operator's tools. */
  service: Login;
}

const key_bytes = 96;

/**
 * Loads the key file of a data folder, which is generated on the first start. The password of the service is derived from
 * it, so there is no second secret that could get out of step.
 */
export async function loadCredentials(dataDir: string): Promise<Credentials> {
  const keyFile = join(dataDir, 'mongod.key');
  await createAtomically(keyFile, `${randomBytes(key_bytes).toString('base64')}\n`);
  // mongod refuses a key file that others can read, as a restored backup may have left it
  await chmod(keyFile, 0o600);
  const key = (await readFile(keyFile, 'utf8')).trim();
  const password = createHmac('sha256', key).update('password of the service').digest('base64url');
  return {
    keyFile,
    system: { username: '__system', password: key, source: 'local' },
    service: { username: 'device_platform', password, source: 'admin' },
  };
}

/** Builds the URI of a database for a login. */
export function buildUri({ username, password, source }: Login, host: string, database: string, options = ''): string {
  const query = [`authSource=${source}`, ...(options === '' ? [] : [options])].join('&');
  return `mongodb://${username}:${encodeURIComponent(password)}@${host}/${database}?${query}`;
}
