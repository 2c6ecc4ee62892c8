import { randomUUID } from 'node:crypto';
import type { mongo } from 'mongoose';
import type { Collection, Database } from '../db/database.js';
import { insertIntoFreeSlot } from '../db/free-slot.js';
import type { Id } from '../db/ids.js';
import { findMany, findOne } from '../db/raw-find.js';
import { AppError } from '../errors.js';
import { readCurrentEventId } from '../events/store.js';
import type { OperationContext } from '../objects/context.js';
import { createResource } from '../objects/write/create.js';
import { formatLastChange } from '../objects/write/last-change.js';
import { updateResource } from '../objects/write/update.js';
import { webhook } from '../resources/index.js';
import type { EventSelection, MessageFormat } from '../resources/webhook.js';
import type { Values } from '../schema/fields.js';

/** Signing secrets as they are stored: encrypted, with the id of the key. */
export interface SealedSecrets {
  secret: Buffer;
  key_id: string;
}

/** A webhook as it is stored. */
export interface StoredWebhook extends EventSelection, Partial<Pick<SealedSecrets, 'key_id'>> {
  secret?: mongo.Binary;
  _id: Id;
  account: string;
  id_developer: string;
  url: string;
  format: MessageFormat;
  digest_s: number;
  enabled: boolean;
  version: number;
  run: string;
  log_from: string;
}

const webhooksOf = (db: Database): Collection<StoredWebhook & { slot: number }> => db.collection(webhook.plural);

/** @returns the hidden fields of a webhook that begins to be sent events now */
async function beginRun(db: Database): Promise<Values> {
  return { run: randomUUID(), log_from: await readCurrentEventId(db) };
}

/**
 * Creates a webhook in a free slot of the account. @returns its identifier
 * @throws AppError invalid (4003), also beyond 100 webhooks
 */
export async function createWebhook(ctx: OperationContext, values: Values, sealed?: SealedSecrets): Promise<string> {
  const { db } = ctx.store;
  const hidden = { ...sealed, ...(await beginRun(db)) };
  const insert = (slot: number) => createResource(ctx, webhook, { ...values, ...hidden, slot });
  return insertIntoFreeSlot(webhooksOf(db), { account: ctx.account }, 'webhooks of an account', insert);
}

/** Adds to the values of an update what a webhook that becomes enabled needs. */
export async function prepareWebhookUpdate({ store }: OperationContext, values: Values): Promise<Values> {
  return values.enabled === true ? { ...values, ...(await beginRun(store.db)) } : values;
}

/** @throws AppError notFound (4041) */
export async function findWebhook({ store, account }: OperationContext, id: string): Promise<StoredWebhook> {
  const document = await findOne(webhooksOf(store.db), { account, id_developer: id });
  if (document === undefined) throw new AppError('notFound');
  return document;
}

/** Stores other secrets, as an update of the version that was read. @throws AppError notFound (4041), conflict (4005) */
export async function replaceSecrets(
  ctx: OperationContext,
  stored: StoredWebhook,
  sealed: SealedSecrets,
): Promise<void> {
  const { id_developer, version } = stored;
  await updateResource(ctx, webhook, id_developer, { values: { ...sealed }, acceptedVersions: [version] });
}

/** Selects the enabled webhooks of all accounts. */
export const selectEnabled = (db: Database) => ({ collection: webhooksOf(db), filter: { enabled: true } });

/** Finds the enabled webhooks of all accounts. */
export function findEnabledWebhooks(db: Database): Promise<StoredWebhook[]> {
  return findMany(webhooksOf(db), selectEnabled(db).filter);
}

/** @returns the webhook with its present settings, undefined if the run has ended */
export function findRunningWebhook(
  db: Database,
  { _id, run }: Pick<StoredWebhook, '_id' | 'run'>,
): Promise<StoredWebhook | undefined> {
  return findOne(webhooksOf(db), { _id, run, enabled: true });
}

/**
 * Disables a webhook whose receiver does not take events any more (reference/webhooks.md#disabling).
 * @returns false if it is disabled already, or in another run
 */
export async function disableWebhook(db: Database, { _id, run }: StoredWebhook, now: number): Promise<boolean> {
  const change = {
    enabled: false,
    updated_at: now,
    last_change: formatLastChange({ disabled: true }),
    last_request_id: randomUUID(),
  };
  const { modifiedCount } = await webhooksOf(db).updateOne(
    { _id, run, enabled: true },
    { $set: change, $inc: { version: 1 } },
  );
  return modifiedCount === 1;
}
