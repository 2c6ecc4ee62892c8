import { pipeline } from 'node:stream/promises';
import { type Request, type Response, Router } from 'express';
import { AppError } from '../errors.js';
import { awaitServer, runInShare } from '../http/admission.js';
import { localsOf } from '../http/context.js';
import { allowGetOnly } from '../http/public-routes.js';
import { createShares } from '../lib/shares.js';
import { runWithTimeLimit } from '../lib/time-limit.js';
import { rethrowAsAppError, storage_timeout } from './endpoints.js';
import { type LinkedFile, openFileToken } from './file-tokens.js';
import { MissingFault } from './limits.js';
import { openLinkedStorage, type StorageDeps } from './linked.js';
import type { FileRequest, FileResponse, FileStorage } from './providers/provider.js';
import { findStorage } from './store.js';

/** Path of the links through the service, below {base_url}. */
export const linksPath = '/external/files/';

const open_timeout_ms = 4000;
/** Downloads take long and must not use up the slots of the service. */
const max_concurrent_downloads = 256;
/** Downloads of one account that wait for a slot. */
const max_waiting = 200;

/**
 * Serves the links of a listing (reference/file-storage.md#links): GET and HEAD, a single range, no key. A link ends after
 * an hour, or when its storage is unlinked or linked again.
 */
export function fileLinkRouter(deps: StorageDeps, clock: () => number): Router {
  const router = Router({ caseSensitive: true });
  const downloads = createShares({ capacity: max_concurrent_downloads, max_waiting });
  router.all(`${linksPath}:token/:name`, allowGetOnly, async (request, response) => {
    localsOf(response).route = `${linksPath}{token}/{name}`;
    const { token, name } = request.params;
    const file = await openFileToken(deps.vault, String(token), clock() / 1000);
    if (file === undefined) throw new AppError('notFound');
    await runInShare(downloads, { account: file.account, response }, async (left) => {
      const open = await openStorage(deps, file);
      const opened = await awaitServer(response, storage_timeout, () =>
        openFile(open, file.path, toFileRequest(request), left),
      );
      await sendFile(response, String(name), opened);
    });
  });
  return router;
}

type OpenFile = NonNullable<FileStorage['open']>;

/** @throws AppError notFound (4041) if the storage was unlinked or linked again, or has no links through the service */
async function openStorage(deps: StorageDeps, file: LinkedFile): Promise<OpenFile> {
  const stored = await findStorage(deps.db, file);
  if (stored?.link !== file.link) throw new AppError('notFound');
  const storage = await openLinkedStorage(deps, stored);
  if (storage.open === undefined) throw new AppError('notFound');
  return storage.open;
}

/** Opens a file, for 4 s at most. @throws AppError notFound (4041) if it is gone, exception (5032) */
async function openFile(
  open: OpenFile,
  path: string,
  request: FileRequest,
  clientSignal: AbortSignal,
): Promise<FileResponse> {
  return runWithTimeLimit(open_timeout_ms, clientSignal, (signal) => open(path, request, signal)).catch(
    (error: unknown) => {
      if (error instanceof MissingFault) throw new AppError('notFound');
      return rethrowAsAppError(error);
    },
  );
}

function toFileRequest({ method, headers }: Request): FileRequest {
  const forwarded: Record<string, string> = {};
  for (const header of ['range', 'if-range']) {
    const value = headers[header];
    if (typeof value === 'string') forwarded[header] = value;
  }
  return { method: method === 'HEAD' ? 'HEAD' : 'GET', headers: forwarded };
}

/** Sends a file; resolves when the client has it or is gone. */
async function sendFile(response: Response, name: string, file: FileResponse): Promise<void> {
  // the timeout response was sent, or the client is gone
  if (response.headersSent || response.destroyed) {
    if ('body' in file) file.body?.destroy();
    return;
  }
  if ('location' in file) {
    response.redirect(302, file.location);
    return;
  }
  response.status(file.status);
  response.attachment(name);
  // pages of other origins may embed pictures; a file that is itself a page must not run scripts here
  response.setHeader('Cross-Origin-Resource-Policy', 'cross-origin');
  response.setHeader('Content-Security-Policy', "sandbox; default-src 'none'");
  response.setHeader('Cache-Control', 'private');
  for (const [header, value] of Object.entries(file.headers)) response.setHeader(header, value);
  // middlewares and `pipeline` listen to the response; together they exceed the default of 10
  response.setMaxListeners(20);
  if (file.body === undefined) response.end();
  else await pipeline(file.body, response).catch(() => undefined);
}
