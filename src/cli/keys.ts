import { setTimeout as sleep } from 'node:timers/promises';
import { Command, InvalidArgumentError, Option } from 'commander';
import { type Config, readConfig } from '../config.js';
import { type Database, openDatabase } from '../db/database.js';
import { StartError } from '../errors.js';
import { resealAll } from '../file-storage/linked.js';
import { openVault } from '../file-storage/vault.js';
import { findEmbeddedUri, startEmbedded } from '../mongod/embedded.js';
import { issueKey, listKeys, revokeByOperator } from '../repositories/api-keys.js';
import { isAccountName, isUserName } from '../resources/api-key.js';
import { type Scope, scopes } from '../schema/operation.js';
import { adoptSecretKey, generateSecret, loadSecretKey, prepareNextSecretKey } from '../secret-key.js';

const connect_limit_ms = 10_000;
const quiet = { info() {}, warn() {}, error() {} };
const note = (line: string) => process.stderr.write(`${line}\n`);
const print = (line: string) => process.stdout.write(`${line}\n`);

/** Runs `work` on MONGODB_URI, else on the embedded database of DATA_DIR, which is started for it unless it runs. */
async function onDatabase(work: (db: Database) => Promise<void>): Promise<void> {
  const config = readConfig({ ...process.env, SECRET_KEY: process.env.SECRET_KEY ?? 'not needed to manage keys' });
  const { uri, stop } = await findDatabase(config);
  const db = openDatabase({ uri, log: quiet, maintenance: async () => undefined });
  try {
    const end = Date.now() + connect_limit_ms;
    while (!(await db.ready())) {
      if (Date.now() > end) throw new StartError('the database does not answer');
      await sleep(50);
    }
    await work(db);
  } finally {
    await db.close();
    await stop();
  }
}

async function findDatabase({ mongodb_uri, data_dir }: Config): Promise<{ uri: string; stop: () => Promise<void> }> {
  const running = mongodb_uri ?? (await findEmbeddedUri(data_dir));
  if (running !== undefined) return { uri: running, stop: async () => undefined };
  return startEmbedded({ dataDir: data_dir, env: process.env, log: quiet, print: note });
}

function checked(accepts: (text: string) => boolean, hint: string) {
  return (given: string) => {
    if (!accepts(given)) throw new InvalidArgumentError(`must be ${hint}`);
    return given;
  };
}

function epochSeconds(given: string): number {
  const seconds = /^\d{1,12}$/.test(given) ? Number(given) : Date.parse(given) / 1000;
  if (!(seconds > Date.now() / 1000)) throw new InvalidArgumentError('must be epoch seconds or a date in the future');
  return seconds;
}

const account = () =>
  new Option('--account <name>', 'the account; it comes into being with its first key')
    .argParser(checked(isAccountName, '1 to 30 lower-case letters, digits and dashes'))
    .makeOptionMandatory();

interface Wanted {
  account: string;
  user: string;
  scope: Scope;
  description?: string;
  expiresAt?: number;
}

const program = new Command('keys').description('Issues, lists and revokes API keys');

program
  .command('create')
  .description('issue a key; standard output gets the key and nothing else')
  .addOption(account())
  .requiredOption(
    '--user <name>',
    'the user',
    checked(isUserName, '1 to 50 letters, digits, dots, dashes and underscores'),
  )
  .addOption(new Option('--scope <scope>', 'what the key may do').choices(scopes).makeOptionMandatory())
  .option(
    '--description <text>',
    'what the key is for',
    checked((text) => text.length <= 200, 'at most 200 characters'),
  )
  .option('--expires-at <time>', 'epoch seconds or an ISO date', epochSeconds)
  .action(async ({ account, user, scope, description, expiresAt }: Wanted) => {
    const wanted = {
      account,
      username: user,
      scope,
      ...(description !== undefined && { description }),
      ...(expiresAt !== undefined && { expires_at: expiresAt }),
    };
    await onDatabase(async (db) => {
      const { key } = await issueKey(db, wanted, Math.floor(Date.now() / 1000));
      print(key);
    });
  });

program
  .command('list')
  .description('list the keys of an account, without the keys themselves')
  .addOption(account())
  .action(async ({ account }: { account: string }) => {
    await onDatabase(async (db) => {
      for (const { id, username, scope, created_at, expires_at, description } of await listKeys(db, account)) {
        const until = expires_at === undefined ? 'does not expire' : `expires ${isoDate(expires_at)}`;
        print([id, username, scope, `created ${isoDate(created_at)}`, until, description ?? ''].join('\t').trimEnd());
      }
    });
  });

program
  .command('rotate-secret')
  .description(
    'encrypt the credentials of linked storage under a new SECRET_KEY: NEW_SECRET_KEY, or one that is made; then start the service anew',
  )
  .action(rotateSecret);

program
  .command('revoke')
  .description('revoke a key; a running service forgets it within 5 s')
  .argument('<id>', 'the id that `list` shows')
  .action(async (id: string) => {
    await onDatabase(async (db) => {
      if (!(await revokeByOperator(db, id))) throw new StartError(`there is no key ${id}`);
    });
  });

/** What is interrupted is finished by the next call: until everything is under the new key, both stay known. */
async function rotateSecret(): Promise<void> {
  const config = readConfig({ ...process.env, SECRET_KEY: process.env.SECRET_KEY || undefined });
  const { NEW_SECRET_KEY: given } = process.env;
  if (given !== undefined) readConfig({ SECRET_KEY: given });
  const kept = config.secret_key === undefined;
  const present = config.secret_key ?? (await loadSecretKey(config.data_dir));
  const next = kept ? await prepareNextSecretKey(config.data_dir, given) : (given ?? generateSecret());
  await onDatabase(async (db) => {
    // before anything is encrypted under it: a key that was never seen would be lost with this process
    if (!kept && given === undefined) print(next);
    const { done, left } = await resealAll(db, openVault(present), openVault(next));
    if (left > 0) throw new StartError(`${left} linked storages open with neither key and stay as they are`);
    if (kept) await adoptSecretKey(config.data_dir);
    note(`${done} linked storages are encrypted under the new key; start the service anew with it`);
  });
}

function isoDate(epoch_s: number): string {
  return new Date(epoch_s * 1000).toISOString();
}

program.parseAsync().catch((error: unknown) => {
  note(error instanceof Error ? error.message : String(error));
  process.exitCode = 1;
});
