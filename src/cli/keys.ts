import { setTimeout as sleep } from 'node:timers/promises';
import { Command, InvalidArgumentError, Option } from 'commander';
import { readConfig, variables } from '../config.js';
import type { Database } from '../db/database.js';
import { AppError, createFieldErrors, type FieldErrors, StartError } from '../errors.js';
import { silentLog } from '../lib/log.js';
import { adoptSecretKey, generateSecret, loadSecretKey, prepareNextSecretKey } from '../mongod/secret-key.js';
import {
  checkLimit,
  issueKey,
  type ListedKey,
  listKeys,
  type RequestedLimit,
  revokeByOperator,
} from '../objects/api-keys.js';
import { isAccountName, isUserName, limitCollections } from '../resources/api-key.js';
import { type Scope, scopes } from '../schema/operation.js';
import { type DatabaseMode, findDatabase } from './find-database.js';

const connect_timeout_ms = 10_000;
const poll_interval_ms = 10;
const printError = (line: string) => process.stderr.write(`${line}\n`);
const print = (line: string) => process.stdout.write(`${line}\n`);

/** Runs `work` on MONGODB_URI or, if unset, on the embedded database of DATA_DIR, started for the purpose if necessary. */
async function withDatabase(mode: DatabaseMode, work: (db: Database) => Promise<void>): Promise<void> {
  const config = readConfig({ ...process.env, SECRET_KEY: process.env.SECRET_KEY ?? 'not needed to manage keys' });
  // not needed by --help and rejected options
  const { openDatabase } = await import('../db/open-database.js');
  const { uri, stop } = await findDatabase(config, mode);
  const db = openDatabase({ uri, log: silentLog, maintenance: async () => undefined });
  try {
    const deadline = Date.now() + connect_timeout_ms;
    await Promise.race([db.attempted, sleep(connect_timeout_ms, undefined, { ref: false })]);
    while (!(await db.isReady())) {
      if (Date.now() > deadline) {
        const variable = config.mongodb_uri === undefined ? `DATA_DIR ${config.data_dir}` : 'MONGODB_URI';
        throw new StartError(`the database of ${variable} does not answer`);
      }
      await sleep(poll_interval_ms);
    }
    await work(db);
  } finally {
    await db.close();
    await stop();
  }
}

/** Returns a parser that passes on what `isValid` accepts. */
function textMatching(isValid: (text: string) => boolean, hint: string) {
  return (text: string) => {
    if (!isValid(text)) throw new InvalidArgumentError(`must be ${hint}`);
    return text;
  };
}

function parseExpiry(text: string): number {
  const seconds = /^\d{1,12}$/.test(text) ? Number(text) : Date.parse(text) / 1000;
  if (!(seconds > Date.now() / 1000)) throw new InvalidArgumentError('must be epoch seconds or a date in the future');
  return seconds;
}

const createAccountOption = () =>
  new Option('--account <name>', 'account; it is created with its first key')
    .argParser(
      textMatching(isAccountName, '1 to 60 letters, digits, dots, underscores and dashes, the first a letter or digit'),
    )
    .makeOptionMandatory();

interface CreateOptions {
  account: string;
  user: string;
  scope: Scope;
  description?: string;
  expiresAt?: number;
  hex?: true;
  idProject?: string;
  idService?: string;
  idGroup?: string;
  idAsset?: string;
  idDevice?: string;
}

/** The limit that the options name. @throws StartError if it does not go with the scope */
function limitOf({ scope, idProject, idService, idGroup, idAsset, idDevice }: CreateOptions): RequestedLimit {
  const named = {
    id_project: idProject,
    id_service: idService,
    id_group: idGroup,
    id_asset: idAsset,
    id_device: idDevice,
  };
  const limit: RequestedLimit = Object.fromEntries(Object.entries(named).filter(([, id]) => id !== undefined));
  const faults = createFieldErrors();
  checkLimit({ scope, ...limit }, faults);
  if (Object.keys(faults).length > 0) throw new StartError(describeFaults(faults));
  return limit;
}

/** Names each fault by the option that caused it. */
function describeFaults(faults: FieldErrors): string {
  return Object.entries(faults)
    .map(([field, fault]) => `--${field.replace('_', '-')} ${String(fault).replaceAll('id_', '--id-')}`)
    .join('; ');
}

/** Describes what a key is limited to, or that it is not. */
function describeLimit(key: ListedKey): string {
  for (const field of limitCollections.keys()) if (key[field] !== undefined) return `${field} ${key[field]}`;
  return 'whole account';
}

const program = new Command('keys').description('Manages API keys and the key that encrypts linked storage');

program
  .command('create')
  .description('issue a key and print it, and nothing else, on standard output')
  .addOption(createAccountOption())
  .requiredOption(
    '--user <name>',
    'user',
    textMatching(isUserName, '1 to 50 letters, digits, dots, dashes and underscores'),
  )
  .addOption(new Option('--scope <scope>', 'permissions of the key').choices(scopes).makeOptionMandatory())
  .option(
    '--description <text>',
    'purpose of the key',
    textMatching((text) => text.length <= 200, 'at most 200 characters'),
  )
  .option('--expires-at <time>', 'epoch seconds or an ISO date', parseExpiry)
  .option('--id-project <id>', 'limit the key to this project and everything below it')
  .option('--id-service <id>', 'limit it to this service')
  .option('--id-group <id>', 'limit it to this group')
  .option('--id-asset <id>', 'limit it to this asset')
  .option('--id-device <id>', 'limit it to this device')
  .option('--hex', 'a key of 64 hexadecimal digits, for programs that accept no others')
  .action(async (options: CreateOptions) => {
    const { account, user, scope, description, expiresAt, hex } = options;
    const newKey = {
      ...limitOf(options),
      account,
      username: user,
      scope,
      ...(description !== undefined && { description }),
      ...(expiresAt !== undefined && { expires_at: expiresAt }),
    };
    await withDatabase('shared', async (db) => {
      const now = Math.floor(Date.now() / 1000);
      const encoding = hex ? 'hex' : 'base64url';
      const { key } = await issueKey(db, newKey, now, undefined, encoding).catch((error: unknown) => {
        throw error instanceof AppError ? new StartError(describeFaults(error.details as FieldErrors)) : error;
      });
      print(key);
    });
  });

program
  .command('list')
  .description('list the keys of an account, without the keys themselves')
  .addOption(createAccountOption())
  .action(async ({ account }: { account: string }) => {
    await withDatabase('existing', async (db) => {
      for (const key of await listKeys(db, account)) {
        const { id, username, scope, created_at, expires_at, description } = key;
        const expiry = expires_at === undefined ? 'does not expire' : `expires ${isoDate(expires_at)}`;
        const columns = [id, username, scope, describeLimit(key), `created ${isoDate(created_at)}`, expiry];
        print([...columns, description ?? ''].join('\t').trimEnd());
      }
    });
  });

program
  .command('rotate-secret')
  .description(
    'encrypt the settings of linked storages and the secrets of webhooks under a new key (NEW_SECRET_KEY or a random one); restart the service afterwards',
  )
  .action(rotateSecret);

program
  .command('revoke')
  .description('revoke a key; running services reject it within 5 s')
  .argument('<id>', 'id of the key, as printed by `list`')
  .action(async (id: string) => {
    await withDatabase('existing', async (db) => {
      if (!(await revokeByOperator(db, id))) throw new StartError(`there is no key ${id}`);
    });
  });

/** Both keys stay valid until everything is encrypted under the new one: if interrupted, run it again to finish. */
async function rotateSecret(): Promise<void> {
  const config = readConfig({ ...process.env, SECRET_KEY: process.env.SECRET_KEY || undefined });
  const requestedKey = process.env.NEW_SECRET_KEY || undefined;
  const { type, expected } = variables.SECRET_KEY;
  if (requestedKey !== undefined && !type.safeParse(requestedKey).success)
    throw new StartError(`NEW_SECRET_KEY must be ${expected}`);
  const isKeyInDataDir = config.secret_key === undefined;
  const [{ sealedStorages }, { sealedWebhooks }, { resealAll }, { openVault }] = await Promise.all([
    import('../file-storage/linked.js'),
    import('../webhooks/secrets.js'),
    import('../objects/write/sealed-values.js'),
    import('../lib/vault.js'),
  ]);
  await withDatabase('existing', async (db) => {
    const currentKey = config.secret_key ?? (await loadSecretKey(config.data_dir));
    const newKey = isKeyInDataDir
      ? await prepareNextSecretKey(config.data_dir, requestedKey)
      : (requestedKey ?? generateSecret());
    // printed before it is used: if this process ended in between, the key would be lost
    if (!isKeyInDataDir && requestedKey === undefined) print(newKey);
    const [current, next] = [openVault(currentKey), openVault(newKey)];
    const { done, left } = await resealAll(db, sealedStorages, current, next);
    const webhooks = await resealAll(db, sealedWebhooks, current, next);
    if (left > 0) throw new StartError(`${left} linked storages open with neither key and were left unchanged`);
    if (webhooks.left > 0)
      throw new StartError(`${webhooks.left} webhooks open with neither key and were left unchanged`);
    if (isKeyInDataDir) await adoptSecretKey(config.data_dir);
    printError(
      `${done} linked storages and ${webhooks.done} webhooks are encrypted under the new key; restart the service with it`,
    );
  });
}

function isoDate(epoch_s: number): string {
  return new Date(epoch_s * 1000).toISOString();
}

program.parseAsync().catch((error: unknown) => {
  printError(error instanceof Error ? error.message : String(error));
  process.exitCode = 1;
});
