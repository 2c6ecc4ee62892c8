import { randomBytes } from 'node:crypto';
import type { OperationContext } from '../objects/context.js';
import type { StoredEvent } from '../resources/event.js';
import { webhook } from '../resources/index.js';

/** Creates an event that is only sent, and in no log (reference/webhooks.md#test). `now_ms` in epoch milliseconds */
export function createTestEvent(
  { account, user, request_id }: OperationContext,
  id_developer: string,
  now_ms: number,
): StoredEvent {
  const seconds = Math.floor(now_ms / 1000)
    .toString(16)
    .padStart(8, '0');
  const _id = seconds + randomBytes(5).toString('hex');
  const { name: resource } = webhook;
  const subject = { type: `${resource}.test`, resource, id_developer };
  return { _id, account, at: now_ms / 1000, ...subject, user, request_id };
}
