import { randomBytes } from 'node:crypto';
import mongoose from 'mongoose';
import { AppError } from '../errors.js';
import type { Vault } from '../lib/vault.js';
import type { OperationContext } from '../objects/context.js';
import type { Bson } from '../objects/page.js';
import { createSealedError, type SealedType } from '../objects/write/sealed-values.js';
import { webhook } from '../resources/index.js';
import { findWebhook, replaceSecrets, type SealedSecrets, type StoredWebhook } from './store.js';

const { BSON } = mongoose.mongo;

/** The signing secrets of a webhook (reference/webhooks.md#secrets). */
interface Secrets {
  current: string;
  /** Replaced secrets, the latest first, with the times (epoch seconds) until which they sign too. */
  former: readonly { secret: string; until: number }[];
}

/** Time for which a replaced secret signs too. */
const overlap_s = 86_400;
/** Replaced secrets that sign at one time, so that the header with the signatures stays short. */
const max_former_secrets = 4;
const max_rotations = 20;

type WebhookPlace = Pick<StoredWebhook, 'account' | 'id_developer'>;

/** The associated data of the secrets, so that they open in no other webhook. */
function createAssociatedData({ account, id_developer }: WebhookPlace): string {
  return JSON.stringify(['webhook', account, id_developer]);
}

/** Generates a secret as Standard Webhooks writes it. */
function generateSecret(): string {
  return `whsec_${randomBytes(32).toString('base64')}`;
}

async function sealSecrets(vault: Vault, place: WebhookPlace, secrets: Secrets): Promise<SealedSecrets> {
  return { secret: await vault.seal(secrets, createAssociatedData(place)), key_id: await vault.keyId() };
}

/** Creates the first secret of a webhook. @returns also the secret itself, which is shown once */
export async function createSecret(
  vault: Vault,
  place: WebhookPlace,
): Promise<{ shown: string; sealed: SealedSecrets }> {
  const current = generateSecret();
  return { shown: current, sealed: await sealSecrets(vault, place, { current, former: [] }) };
}

/** Reports whether a webhook, as it was written, has these secrets: one that was `standard` before keeps its own. */
export function isStoredSecret(webhook: Bson, { secret }: SealedSecrets): boolean {
  return BSON.deserialize(webhook, { promoteBuffers: true }).secret?.equals(secret) === true;
}

/** Adds a new secret, which the answer to an update shows once. */
export function mergeSecret(webhook: Bson, new_secret: string): Bson {
  return BSON.serialize({ ...BSON.deserialize(webhook), new_secret });
}

/** Opens the stored secrets. @returns undefined if they are under another SECRET_KEY or were tampered with */
async function openSecrets(vault: Vault, stored: StoredWebhook): Promise<Secrets | undefined> {
  if (stored.secret === undefined) return undefined;
  return (await vault.open(Buffer.from(stored.secret.value()), createAssociatedData(stored))) as Secrets | undefined;
}

/** Webhooks with their encrypted secrets. */
export const sealedWebhooks: SealedType<StoredWebhook, Secrets> = {
  plural: webhook.plural,
  revision: 'version',
  open: openSecrets,
  seal: sealSecrets,
};

/** Finds the secrets that sign at `now` (epoch seconds). @throws AppError exception (5032) if they cannot be opened */
export async function openSigningSecrets(vault: Vault, stored: StoredWebhook, now: number): Promise<string[]> {
  const secrets = await openSecrets(vault, stored);
  if (secrets === undefined) {
    const changed = 'the stored secret of the webhook was changed; make a new one';
    throw await createSealedError(vault, stored, { made: 'the secret of the webhook was made', changed });
  }
  const former = secrets.former.filter(({ until }) => until > now).map(({ secret }) => secret);
  return [secrets.current, ...former];
}

/** Replaces the secret of a webhook; for 24 h the former one signs too. @returns the new one @throws AppError invalid (4003) */
export async function rotateSecret(ctx: OperationContext, vault: Vault, id: string): Promise<string> {
  const current = generateSecret();
  for (let attempt = 1; ; attempt++) {
    const stored = await findWebhook(ctx, id);
    if (stored.format !== 'standard') throw new AppError('invalid', { format: 'must be standard' });
    const old = await openSecrets(vault, stored);
    const former = old === undefined ? [] : [{ secret: old.current, until: ctx.now + overlap_s }, ...old.former];
    const valid = former.filter(({ until }) => until > ctx.now).slice(0, max_former_secrets);
    const sealed = await sealSecrets(vault, stored, { current, former: valid });
    try {
      await replaceSecrets(ctx, stored, sealed);
      return current;
    } catch (error) {
      // another request has changed the webhook since it was read
      if (!(error instanceof AppError) || error.failure !== 'conflict' || attempt === max_rotations) throw error;
    }
  }
}
