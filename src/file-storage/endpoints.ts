import { setMaxListeners } from 'node:events';
import { setImmediate as yieldTurn } from 'node:timers/promises';
import { AppError } from '../errors.js';
import { awaitServer, runInShare } from '../http/admission.js';
import type { Endpoint, EndpointDeps, RequestContext } from '../http/context.js';
import { chooseListFormat } from '../http/negotiate.js';
import { createListSender } from '../http/respond.js';
import { splitIntoBatches } from '../lib/batches.js';
import { createShares } from '../lib/shares.js';
import { runWithTimeLimit } from '../lib/time-limit.js';
import type { Bson } from '../objects/page.js';
import { isUserName, userName } from '../resources/api-key.js';
import { file } from '../resources/index.js';
import { parseFields } from '../schema/body.js';
import { columnsOf } from '../schema/columns.js';
import { choice, text } from '../schema/fields/text.js';
import { type FieldType, optional, type Schema, withDocumentation } from '../schema/fields.js';
import { fieldsOf, format, outputOf } from '../schema/list-parameters.js';
import { describeBody } from '../schema/openapi/bodies.js';
import { parseQuery } from '../schema/query.js';
import { createFileToken } from './file-tokens.js';
import { StorageFault, type StorageLimits } from './limits.js';
import { findChangedSettings, openLinkedStorage, type StorageDeps, sealSettings } from './linked.js';
import { getFileName, type ListOrder, listFiles, listOrders } from './listing.js';
import type { FileStorage, Provider, Settings, StoredFile } from './providers/provider.js';
import { findStorage, linkStorage, type StoragePlace, toBson, unlinkStorage } from './store.js';

/** Leaves one of the 5 s in which a request is answered. */
const provider_timeout_ms = 4000;
const max_provider_bytes = 64 * 1024 * 1024;
/** Bounds the requests that wait for providers, so that slow ones do not use up the slots of the service. */
const max_concurrent_requests = 64;
/** Requests of one account that wait for a slot, and listings of one storage that wait for the one in progress. */
const max_waiting = 200;
/** Presigning this many links takes up to 15 ms. */
const link_batch_size = 250;

const common = { tag: 'storage', path: '/external/{provider}/user/{username}/' } as const;
const columns = columnsOf(file);
const query = new Map<string, FieldType>([
  [
    'op',
    withDocumentation(choice(...listOrders), {
      about: '`all` sorts by path, `newest` and `oldest` by time of change.',
      example: 'newest',
    }),
  ],
  ['name', withDocumentation(text(1000), { about: 'Only files with exactly this name.', example: 'march.csv' })],
  ['format', format],
  ['fields', fieldsOf(columns)],
]);

/** The types of the path parameters. */
function describePlace(providers: readonly Provider[]): Pick<Endpoint, 'pathParameters'> {
  const kinds = choice(...providers.map(({ name }) => name));
  return {
    pathParameters: {
      provider: withDocumentation(kinds, { about: 'Kind of storage.', example: 'local' }),
      username: withDocumentation(userName(), { about: 'User whose storage it is; needs no key.', example: 'alice' }),
    },
  };
}

/** The settings of each provider, as a table in Markdown. */
function describeProviders(providers: readonly Provider[]): string {
  const rows = providers.map(({ name, fields }) => {
    const settings = Object.entries(fields).map(([key, { presence }]) =>
      presence === 'optional' ? `\`${key}\` (optional)` : `\`${key}\``,
    );
    return `| \`${name}\` | ${settings.join(', ')} |`;
  });
  return ['| provider | settings |', '|---|---|', ...rows].join('\n');
}

/** The settings of all providers as one body: code generators misread alternatives. */
function describeSettings(providers: readonly Provider[]): Schema {
  const settings = providers.flatMap(({ name, fields }) =>
    Object.entries(fields).map(
      ([key, { type }]) => [key, optional(withDocumentation(type, { provider: name }))] as const,
    ),
  );
  const body = describeBody({ title: 'Storage', fields: Object.fromEntries(settings), example: { path: '.' } }, false);
  return { ...body, description: 'The settings of the provider in the path, and no others.' };
}

/** Runs `work` in one of the slots for requests to providers; its limits end with the request or its client. */
type WithProviderSlot = <T>(ctx: RequestContext, work: (limits: StorageLimits) => Promise<T>) => Promise<T>;

/**
 * Linking a storage (reference/file-storage.md#linking) and listing its files (reference/file-storage.md#listing).
 * `getLinkBase` returns the URL in front of the tokens of links through the service.
 */
export function linkedStorageEndpoints(
  { yieldTurn }: EndpointDeps,
  deps: StorageDeps,
  getLinkBase: () => string,
): Endpoint[] {
  const withProviderSlot = createProviderSlots();
  return [
    listEndpoint(deps, createListSender(file, yieldTurn), getLinkBase, withProviderSlot),
    linkEndpoint(deps, withProviderSlot),
    unlinkEndpoint(deps),
  ];
}

function createProviderSlots(): WithProviderSlot {
  const slots = createShares({ capacity: max_concurrent_requests, max_waiting });
  return (ctx, work) =>
    runInShare(slots, ctx, (left) =>
      awaitServer(ctx.response, storage_timeout, () =>
        runWithTimeLimit(provider_timeout_ms, left, (signal) => {
          // a listing reads several folders at once
          setMaxListeners(0, signal);
          return work({ signal, bytes: max_provider_bytes });
        }),
      ),
    );
}

function listEndpoint(
  deps: StorageDeps,
  sendFiles: ReturnType<typeof createListSender>,
  getLinkBase: () => string,
  withProviderSlot: WithProviderSlot,
): Endpoint {
  const { db, providers } = deps;
  /** Each storage is listed once at a time. */
  const listings = createShares({ capacity: Number.POSITIVE_INFINITY, max_per_account: 1, max_waiting });
  return {
    ...common,
    ...describePlace(providers),
    operationId: 'listStorageFiles',
    method: 'get',
    summary: 'List the files of a linked storage; their links open without a key, for an hour',
    scope: 'read',
    limitedKeys: 'refused',
    query,
    requiredQuery: ['op'],
    result: { kind: 'list', type: file },
    failures: ['badParameter'],
    async handle(ctx) {
      findProvider(providers, ctx);
      const place = parsePlace(ctx);
      const params = parseQuery(ctx.query, query, (values, faults) => {
        if (values.op === undefined) faults.op ??= 'must be given';
      });
      const { op, name } = params;
      const output = outputOf(columns, params, chooseListFormat(ctx.request.headers.accept));
      const stored = await findStorage(db, place);
      if (stored === undefined) throw new AppError('unauthorized');
      const storage = await openLinkedStorage(deps, stored);
      await runInShare(listings, { account: stored.link, response: ctx.response }, () =>
        withProviderSlot(ctx, async (limits) => {
          const files = await listFiles(storage, { op: op as ListOrder, name: name as string | undefined }, limits);
          const createLink = async (file: StoredFile) => {
            const fileToken = await createFileToken(deps.vault, stored, file.path, ctx.now);
            return `${getLinkBase()}${fileToken}/${encodeURIComponent(getFileName(file))}`;
          };
          const batches = linkFiles(files, storage, limits, createLink);
          await sendFiles(ctx, { total_documents: files.length, batches }, output);
        }).catch(rethrowAsAppError),
      );
    },
  };
}

/** Adds the links to the files, in batches: a long list is never held as text. */
async function* linkFiles(
  files: readonly StoredFile[],
  { links: getProviderLinks, max_links = Number.POSITIVE_INFINITY }: FileStorage,
  limits: StorageLimits,
  createServiceLink: (file: StoredFile) => Promise<string>,
): AsyncGenerator<Bson[]> {
  for (const batch of splitIntoBatches(files, link_batch_size)) {
    const useProviderLinks = getProviderLinks !== undefined && files.length <= max_links;
    const providerLinks = useProviderLinks ? await getProviderLinks(batch, limits) : [];
    const urls = await Promise.all(batch.map(async (file, index) => providerLinks[index] ?? createServiceLink(file)));
    yield batch.map((file, index) => {
      const { path, size, modified_at } = file;
      return toBson({ name: getFileName(file), path, size, modified_at, url: urls[index] });
    });
    await yieldTurn();
  }
}

function linkEndpoint(deps: StorageDeps, withProviderSlot: WithProviderSlot): Endpoint {
  const { providers, vault, egress } = deps;
  const settingNames = new Set(providers.flatMap(({ fields }) => Object.keys(fields)));
  return {
    ...common,
    ...describePlace(providers),
    operationId: 'linkStorage',
    method: 'put',
    summary: 'Link a storage, which is tried first; its credentials are encrypted and never shown',
    description: describeProviders(providers),
    scope: 'admin',
    body: { schema: describeSettings(providers), updating: true },
    result: { kind: 'status', success: 'created', message: 'storage linked' },
    failures: ['noBody', 'badParameter', 'invalid', 'tooLarge'],
    async handle(ctx) {
      const provider = findProvider(providers, ctx);
      const place = parsePlace(ctx);
      // as everywhere null counts as absent, also for settings of other providers
      const sent = Object.entries(ctx.body).filter(([key, value]) => value !== null || !settingNames.has(key));
      const settings = parseFields({ ...file, ...provider, readOnly: {} }, Object.fromEntries(sent)) as Settings;
      const storage = provider.open(settings, egress, place.account);
      await withProviderSlot(ctx, (limits) => storage.check(limits)).catch((error: unknown) => {
        if (!(error instanceof StorageFault)) throw error;
        throw new AppError('invalid', { [provider.faultField[error.kind]]: error.message }, { cause: error });
      });
      const changed = await findChangedSettings(deps, place, settings);
      const isNew = await linkStorage(ctx, place, await sealSettings(vault, place, settings), changed);
      return isNew ? {} : { result: { success: 'updated', message: 'storage updated' } };
    },
  };
}

function unlinkEndpoint({ providers }: StorageDeps): Endpoint {
  return {
    ...common,
    ...describePlace(providers),
    operationId: 'unlinkStorage',
    method: 'delete',
    summary: 'Unlink a storage; links to its files end',
    scope: 'admin',
    result: { kind: 'status', success: 'deleted', message: 'storage unlinked' },
    async handle(ctx) {
      findProvider(providers, ctx);
      await unlinkStorage(ctx, parsePlace(ctx));
    },
  };
}

/** @throws AppError badParameter (4004) */
function findProvider(providers: readonly Provider[], { path }: RequestContext): Provider {
  const provider = providers.find(({ name }) => name === path.provider);
  if (provider !== undefined) return provider;
  throw new AppError('badParameter', { provider: `must be one of ${providers.map(({ name }) => name).join(', ')}` });
}

/** @throws AppError badParameter (4004) */
function parsePlace({ path, principal }: RequestContext): StoragePlace {
  const { provider = '', username = '' } = path;
  if (!isUserName(username)) throw new AppError('badParameter', { username: 'must be the name of a user' });
  return { account: principal.account, provider, username };
}

/** Message for a request that times out while it waits for a provider. */
export const storage_timeout = 'the linked storage did not answer in time';

/** Reports a provider's failure as 5032, as the request is not to blame. @throws AppError exception (5032) */
export function rethrowAsAppError(error: unknown): never {
  if (!(error instanceof StorageFault)) throw error;
  throw new AppError('exception', { message: `the linked storage ${error.message}` }, { cause: error });
}
