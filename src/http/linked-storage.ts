import { setImmediate as turn } from 'node:timers/promises';
import type { Response } from 'express';
import { AppError } from '../errors.js';
import { createFileToken } from '../file-storage/file-tokens.js';
import { StorageFault, type StorageLimits } from '../file-storage/limits.js';
import { openLinked, type StorageDeps, sealSettings } from '../file-storage/linked.js';
import { listFiles, nameOf, type Order, orders } from '../file-storage/listing.js';
import type { Provider, Settings, Storage, StoredFile } from '../file-storage/provider.js';
import {
  findStorage,
  type LinkedStorage,
  linkStorage,
  type StoragePlace,
  toBson,
  unlinkStorage,
} from '../repositories/linked-storages.js';
import type { Bson } from '../repositories/page.js';
import { isUserName } from '../resources/api-key.js';
import { file } from '../resources/index.js';
import { choice, type FieldType, text } from '../schema/fields.js';
import { bodySchema } from '../schema/openapi.js';
import { body_limit_bytes } from '../schema/operation.js';
import { parseFields, parseQuery } from '../schema/validation.js';
import { type Endpoint, type EndpointDeps, localsOf, type RequestContext } from './context.js';
import { createResponder, sendSuccess } from './respond.js';

/** Of the 5 s in which a request is answered. */
const provider_limit_ms = 4000;
const provider_limit_bytes = 64 * 1024 * 1024;
/** Requests that wait for providers at once: slow ones leave the rest of the service alone. */
const most_at_once = 64;
const printed_at_once = 500;

const path = '/external/{provider}/user/{username}/';
const query = new Map<string, FieldType>([
  ['op', choice(...orders)],
  ['name', text(1000)],
]);

/** Linking a storage and listing its files (§4.11, contract 10); `links` is where those of our own begin. */
export function linkedStorageEndpoints({ yieldTurn }: EndpointDeps, linking: StorageDeps, links: string): Endpoint[] {
  const { db, providers, vault, reach } = linking;
  const respond = createResponder(yieldTurn, file, { tagged: false });
  const shared = { tag: 'external', path } as const;
  let busy = 0;

  function providerOf({ path: { provider: given = '' } }: RequestContext): Provider {
    const provider = providers.find(({ name }) => name === given);
    if (provider !== undefined) return provider;
    throw new AppError('badParameter', { provider: `must be one of ${providers.map(({ name }) => name).join(', ')}` });
  }

  function placeOf(call: RequestContext): StoragePlace {
    const { username = '' } = call.path;
    if (!isUserName(username)) throw new AppError('badParameter', { username: 'must be the name of a user' });
    return { account: call.principal.account, provider: call.path.provider ?? '', username };
  }

  /** Lets `work` ask a provider, within bounds that end with the request. */
  async function asking<T>(response: Response, work: (bounds: StorageLimits) => Promise<T>): Promise<T> {
    if (busy >= most_at_once) throw new AppError('overloaded');
    busy++;
    localsOf(response).timeoutError = storageTimeout();
    const gone = new AbortController();
    const stop = () => gone.abort();
    response.once('close', stop);
    const signal = AbortSignal.any([gone.signal, AbortSignal.timeout(provider_limit_ms)]);
    try {
      return await work({ signal, bytes: provider_limit_bytes });
    } finally {
      busy--;
      response.off('close', stop);
    }
  }

  /** The files with their links, a few at a time: a long list is never held as text. */
  async function* batchesOf(
    files: readonly StoredFile[],
    storage: Storage,
    stored: LinkedStorage,
    bounds: StorageLimits,
    now: number,
  ): AsyncGenerator<Bson[]> {
    const { links: direct, max_links = Number.POSITIVE_INFINITY } = storage;
    const own = async (one: StoredFile) =>
      `${links}${await createFileToken(vault, stored, one.path, now)}/${encodeURIComponent(nameOf(one))}`;
    for (let from = 0; from < files.length; from += printed_at_once) {
      const part = files.slice(from, from + printed_at_once);
      const given = direct !== undefined && files.length <= max_links ? await direct(part, bounds) : [];
      const urls = await Promise.all(part.map(async (one, index) => given[index] ?? (await own(one))));
      yield part.map((one, index) =>
        toBson({ name: nameOf(one), path: one.path, size: one.size, modified_at: one.modified_at, url: urls[index] }),
      );
      await turn();
    }
  }

  return [
    {
      ...shared,
      method: 'get',
      summary: 'List the files of a linked storage; their links open without a key, for an hour',
      scope: 'read',
      query,
      requiredQuery: ['op'],
      result: { kind: 'list', type: file },
      failures: ['badParameter'],
      async handle(call) {
        providerOf(call);
        const place = placeOf(call);
        const { op, name } = parseQuery(call.query, query, (given, faults) => {
          if (given.op === undefined) faults.op ??= 'must be given';
        });
        const stored = await findStorage(db, place);
        if (stored === undefined) throw new AppError('unauthorized');
        const storage = await openLinked(linking, stored);
        await asking(call.response, async (bounds) => {
          const wanted = { op: op as Order, name: name as string | undefined };
          const files = await listFiles(storage, wanted, bounds);
          const batches = batchesOf(files, storage, stored, bounds, call.now);
          await respond.list(call, { total_documents: files.length, batches });
        }).catch(rethrowAsAppError);
      },
    },
    {
      ...shared,
      method: 'put',
      summary: 'Link a storage, which is tried first; its credentials are encrypted and never shown',
      scope: 'admin',
      body: {
        schema: { anyOf: providers.map(({ name, fields }) => bodySchema({ name, fields, readOnly: {} }, false)) },
        updating: true,
        limit_bytes: body_limit_bytes,
      },
      result: { kind: 'status', status: 200, code: 2001, message: 'storage linked' },
      failures: ['noBody', 'badParameter', 'invalid', 'tooLarge'],
      async handle(call) {
        const provider = providerOf(call);
        const place = placeOf(call);
        const settings = parseFields({ ...file, ...provider, readOnly: {} }, call.body) as Settings;
        await asking(call.response, (bounds) => provider.open(settings, reach).check(bounds)).catch(
          (error: unknown) => {
            if (!(error instanceof StorageFault)) throw error;
            throw new AppError('invalid', { [provider.faultField[error.blame]]: error.message }, { cause: error });
          },
        );
        const fresh = await linkStorage(call, place, await sealSettings(vault, place, settings));
        if (fresh) sendSuccess(call, 2001, 'storage linked');
        else sendSuccess(call, 2005, 'storage updated');
      },
    },
    {
      ...shared,
      method: 'delete',
      summary: 'Unlink a storage; links to its files end',
      scope: 'admin',
      result: { kind: 'status', status: 200, code: 2004, message: 'storage unlinked' },
      failures: ['badParameter', 'notFound'],
      async handle(call) {
        providerOf(call);
        await unlinkStorage(db, placeOf(call));
        sendSuccess(call, 2004, 'storage unlinked');
      },
    },
  ];
}

/** What a request is told that runs out of time while a provider is asked. */
export function storageTimeout(): AppError {
  return new AppError('exception', { message: 'the linked storage did not answer in time' });
}

/** What a provider does wrong is no fault of the request. @throws AppError exception (5032) */
export function rethrowAsAppError(error: unknown): never {
  if (!(error instanceof StorageFault)) throw error;
  throw new AppError('exception', { message: `the linked storage ${error.message}` }, { cause: error });
}
