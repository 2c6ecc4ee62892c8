import { read_limit_ms } from '../db/database.js';
import { findRaw } from '../db/raw-find.js';
import type { OperationContext } from '../objects/context.js';
import { listChildren } from '../objects/lists.js';
import type { Bson, Page } from '../objects/page.js';
import { command, device } from '../resources/index.js';
import type { ListRequest } from '../schema/list-parameters.js';
import type { CommandMetrics } from './delivery.js';
import { applyTransitions, commandsOf, toRef } from './store.js';

/** Hands the queued commands of a device out to it, oldest first: they are sent from then on (reference/commands.md#over-http). */
export async function fetchQueued(
  ctx: OperationContext,
  id: string,
  asked: ListRequest,
  metrics: CommandMetrics,
): Promise<Page> {
  const request = {
    ...asked,
    filter: { ...asked.filter, expires_at: { $gt: ctx.now } },
    sort: { ...asked.sort, direction: 1 },
  } as const;
  const page = await listChildren(ctx, command, request, { parent: device, field: 'device', id });
  const queued: Bson[] = [];
  for await (const batch of page.batches) queued.push(...batch);
  const refs = queued.map(toRef);
  metrics.entered('sent', await applyTransitions(ctx.store.db, refs, 'sent', ctx));
  const isSent = { _id: { $in: refs.map(({ _id }) => _id) }, status: 'sent' };
  return { ...page, batches: readSent(ctx, isSent) };
}

/** Reads commands as they are now, in the order of the list. */
async function* readSent({ store }: OperationContext, filter: object): AsyncGenerator<readonly Bson[]> {
  yield* findRaw(commandsOf(store.db), { filter, sort: { _id: 1 }, maxTimeMS: read_limit_ms }).batches;
}
