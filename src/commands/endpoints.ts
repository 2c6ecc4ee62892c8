import { read_limit_ms } from '../db/database.js';
import { findRaw } from '../db/raw-find.js';
import { createSelection, toBulkAnswer } from '../http/bulk-endpoints.js';
import type { Answer, Endpoint, RequestContext } from '../http/context.js';
import { createListing } from '../http/list-request.js';
import type { SendFeed } from '../http/live/send-feed.js';
import type { Tail } from '../http/live/tail.js';
import { applyToMatches } from '../objects/bulk/apply-to-matches.js';
import type { OperationContext } from '../objects/context.js';
import type { Bson, Page } from '../objects/page.js';
import { assertExists, assertWithinReach } from '../objects/resources.js';
import { listChildren } from '../objects/select/lists.js';
import { commandId } from '../resources/command.js';
import { command, device } from '../resources/index.js';
import type { ListRequest } from '../schema/list-parameters.js';
import { describeBody, describeClosed } from '../schema/openapi/bodies.js';
import { describeIdentifier } from '../schema/resource.js';
import type { CommandMetrics, MarkSent } from './delivery.js';
import { openCommandFeed } from './feed.js';
import { queueCommands } from './many.js';
import { commandResult, parseCommand, parseResult } from './parse.js';
import {
  applyTransitions,
  commandsOf,
  createCommand,
  findCommand,
  finishCommand,
  loadCommand,
  toRef,
} from './store.js';
import type { CommandEntry } from './tail.js';

export interface CommandDeps {
  tail: Tail<CommandEntry>;
  markSent: MarkSent;
  sendFeed: SendFeed;
  /** Epoch milliseconds. */
  clock: () => number;
  metrics: CommandMetrics;
}

const all = '/devices/{device_id_developer}/commands/';
const ofId = `${all}{command}/`;

const createdDetails = describeClosed(
  'CreatedCommand',
  'The new command.',
  { id: command.readOnly.id?.type.schema },
  { examples: [{ id: commandId }] },
);

/** Creates the endpoints of commands (reference/commands.md). */
export function commandEndpoints(deps: CommandDeps): Endpoint[] {
  const ofDevice = { device_id_developer: describeIdentifier(device) };
  const idType = command.readOnly.id?.type;
  const ofCommand = { ...ofDevice, ...(idType && { command: idType }) };
  const idOf = ({ path }: RequestContext) => path.device_id_developer ?? '';
  const commandOf = ({ path }: RequestContext) => path.command ?? '';
  const shared = { tag: 'commands', path: all, pathParameters: ofDevice } as const;
  const onCommand = { tag: 'commands', path: ofId, pathParameters: ofCommand } as const;

  async function finish(ctx: RequestContext, status: 'cancelled' | 'done' | 'failed', result?: unknown): Promise<void> {
    const { store, account } = ctx;
    await assertWithinReach(ctx, device, idOf(ctx));
    const stored = await findCommand(store.db, account, idOf(ctx), commandOf(ctx));
    if (await finishCommand(store.db, stored, { status, result }, ctx)) deps.metrics.entered(status, 1);
  }

  async function list(ctx: RequestContext, request: ListRequest): Promise<Page> {
    const isFetch = ctx.principal.scope === 'device' && request.params.status === 'queued';
    if (isFetch && ctx.request.method !== 'HEAD') return fetchQueued(ctx, idOf(ctx), request, deps.metrics);
    return listChildren(ctx, command, request, { parent: device, field: 'device', id: idOf(ctx) });
  }

  async function createForMany(ctx: RequestContext): Promise<Answer> {
    const request = matching.parse(ctx.query, ctx.now);
    const values = parseCommand(ctx.body);
    const details = await applyToMatches(ctx, device, { request, values, action: queueCommands });
    deps.metrics.entered('queued', details.changed ?? 0);
    return toBulkAnswer(details);
  }

  return [
    {
      ...shared,
      operationId: 'createCommand',
      method: 'post',
      summary: 'Queue a command for a device',
      scope: 'write',
      body: { schema: describeBody(command, false), updating: false },
      result: {
        kind: 'status',
        success: 'created',
        message: 'command created',
        details: createdDetails,
        hasLocation: true,
      },
      async handle(ctx) {
        const id = await createCommand(ctx, idOf(ctx), parseCommand(ctx.body));
        deps.metrics.entered('queued', 1);
        return { details: { id }, location: ['devices', idOf(ctx), 'commands', id] };
      },
    },
    {
      ...matching.operation,
      tag: 'commands',
      path: '/devices/commands/',
      operationId: 'createManyCommands',
      method: 'post',
      summary: 'Queue a command for all devices that match',
      description: 'Takes at least one filter. Queues nothing unless `confirm` is the number of matches.',
      body: { schema: describeBody(command, false), updating: false },
      result: { kind: 'status', success: 'created', message: 'command created', details: matching.details },
      handle: createForMany,
    },
    {
      ...shared,
      operationId: 'listCommands',
      summary: 'List the commands of a device, newest first',
      description:
        'To a key of scope `device`, `status=queued` gives the queued commands, oldest first, which are `sent` from then on.',
      scope: 'read',
      isForDevices: true,
      // newest first unless the request sorts
      ...createListing(command, list, { direction: -1 }),
    },
    {
      ...shared,
      operationId: 'followCommands',
      method: 'get',
      path: `${all}live/`,
      summary: 'Follow the commands of a device, open ones first',
      description:
        'Server-sent events: `id`, `event` (`command`), and `data` as the device gets it over MQTT. To a key of scope `device` the commands are `sent` once they are written.',
      scope: 'read',
      isForDevices: true,
      isCostly: true,
      result: { kind: 'feed', type: command },
      async handle(ctx) {
        const { tail, clock, markSent, sendFeed } = deps;
        const owner = await assertExists(ctx, device, idOf(ctx));
        const isSame = async () => {
          const present = await ctx.store.loader(device.plural).locate(ctx, idOf(ctx));
          return present?._id.equals(owner._id) === true;
        };
        const options = { db: ctx.store.db, tail, device: owner, clock, isSame };
        const marks = ctx.principal.scope === 'device' ? markSent : undefined;
        await sendFeed(ctx, { kind: 'commands', open: () => openCommandFeed({ ...options, markSent: marks }) });
      },
    },
    {
      ...onCommand,
      operationId: 'getCommand',
      method: 'get',
      summary: 'Show a command',
      scope: 'read',
      isForDevices: true,
      result: { kind: 'object', type: command },
      handle: async (ctx) => ({ document: await loadCommand(ctx, idOf(ctx), commandOf(ctx)) }),
    },
    {
      ...onCommand,
      operationId: 'deleteCommand',
      method: 'delete',
      summary: 'Cancel an open command',
      scope: 'write',
      failures: ['badParameter', 'invalid', 'notFound'],
      result: { kind: 'status', success: 'deleted', message: 'command cancelled' },
      handle: (ctx) => finish(ctx, 'cancelled'),
    },
    {
      ...onCommand,
      path: `${ofId}result/`,
      operationId: 'createCommandResult',
      method: 'post',
      summary: 'Answer a command',
      description: 'The same `status` again changes nothing and succeeds.',
      scope: 'write',
      isForDevices: true,
      body: { schema: describeBody(commandResult, false), updating: false },
      result: { kind: 'status', success: 'updated', message: 'command updated' },
      async handle(ctx) {
        const { status, result } = parseResult(ctx.body, ({ id }, faults) => {
          if (id !== undefined && id !== commandOf(ctx)) faults.id ??= 'must be that of the path';
        });
        await finish(ctx, status, result);
      },
    },
  ];
}

const matching = createSelection(device);

/** Hands the queued commands of a device out to it, oldest first: they are sent from then on (reference/commands.md#over-http). */
async function fetchQueued(
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
