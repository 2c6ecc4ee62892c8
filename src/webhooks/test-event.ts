import { randomBytes } from 'node:crypto';
import type { OperationContext } from '../objects/context.js';
import { webhook } from '../resources/index.js';
import { type OutgoingEvent, toOutgoingEvent } from './deliveries.js';

/** Creates an event that is only sent, and in no log (reference/webhooks.md#test). `now_ms` in epoch milliseconds */
export function createTestEvent(
  { account, user, request_id }: OperationContext,
  id_developer: string,
  now_ms: number,
): OutgoingEvent {
  const seconds = Math.floor(now_ms / 1000)
    .toString(16)
    .padStart(8, '0');
  const _id = seconds + randomBytes(5).toString('hex');
  const { name: resource } = webhook;
  return toOutgoingEvent({
    _id,
    account,
    type: `${resource}.test`,
    at: now_ms / 1000,
    resource,
    id_developer,
    user,
    request_id,
  });
}
