import { pipeline } from 'node:stream/promises';
import { Router } from 'express';
import { AppError } from '../errors.js';
import { openFileToken } from '../file-storage/file-tokens.js';
import { openLinked, type StorageDeps } from '../file-storage/linked.js';
import { findStorage } from '../repositories/linked-storages.js';
import { localsOf } from './context.js';
import { rethrowAsAppError, storageTimeout } from './linked-storage.js';
import { allowGetOnly } from './public-routes.js';

/** Where the links of our own begin, below {base_url}. */
export const links_path = '/external/files/';

const begin_limit_ms = 4000;
/** Downloads are long, and must not use up what the service takes of requests. */
const most_at_once = 256;

/**
 * Opens the links that the listing hands out (contract 10): GET and HEAD, a single range, no key. They end after an hour,
 * and with the link to the storage.
 */
export function fileLinkRouter(linking: StorageDeps, clock: () => number): Router {
  const router = Router({ caseSensitive: true });
  let busy = 0;
  router.all(`${links_path}:token/:name`, allowGetOnly, async (request, response) => {
    localsOf(response).route = `${links_path}{token}/{name}`;
    const { token, name } = request.params;
    const file = await openFileToken(linking.vault, String(token), clock() / 1000);
    const stored = file && (await findStorage(linking.db, file));
    if (file === undefined || stored?.link !== file.link) throw new AppError('notFound');
    if (busy >= most_at_once) throw new AppError('overloaded');
    busy++;
    response.once('close', () => busy--);
    const storage = await openLinked(linking, stored);
    if (storage.open === undefined) throw new AppError('notFound');
    localsOf(response).timeoutError = storageTimeout();
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(), begin_limit_ms);
    const headers: Record<string, string> = {};
    for (const wanted of ['range', 'if-range']) {
      const given = request.headers[wanted];
      if (typeof given === 'string') headers[wanted] = given;
    }
    const method = request.method === 'HEAD' ? 'HEAD' : 'GET';
    const opened = await storage.open(file.path, { method, headers }, late.signal).catch(rethrowAsAppError);
    clearTimeout(timer);
    if (response.headersSent) {
      if ('body' in opened) opened.body?.destroy();
      return;
    }
    if ('location' in opened) {
      response.redirect(302, opened.location);
      return;
    }
    response.status(opened.status);
    response.attachment(String(name));
    // pages of other origins may show pictures; a file that is a page itself may do nothing here
    response.setHeader('Cross-Origin-Resource-Policy', 'cross-origin');
    response.setHeader('Content-Security-Policy', "sandbox; default-src 'none'");
    response.setHeader('Cache-Control', 'private');
    for (const [header, value] of Object.entries(opened.headers)) response.setHeader(header, value);
    if (opened.body === undefined) response.end();
    else await pipeline(opened.body, response).catch(() => undefined);
  });
  return router;
}
