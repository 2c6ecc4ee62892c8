import { request, send } from './client.js';
import type { Scope } from './document.js';
import { RequestError } from './errors.js';

/**
 * Finds the scope of the key. The interface does not name it, so each step tries what only the larger scopes may do:
 * to list keys, to create something (with an empty body, which creates nothing), to list projects.
 */
export async function findScope(signal: AbortSignal): Promise<Scope> {
  if (await isPermitted(() => request('GET', '/apikeys/', { query: { max: 1 }, signal }))) return 'admin';
  if (await isPermitted(() => send('POST', '/projects/', { signal }))) return 'write';
  if (await isPermitted(() => request('GET', '/projects/', { query: { max: 1 }, signal }))) return 'read';
  return 'stream';
}

/** Reports whether the answer is another one than 4031; the scope is checked before the body is. */
async function isPermitted(attempt: () => Promise<unknown>): Promise<boolean> {
  try {
    await attempt();
    return true;
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
    if (error.code === 4031) return false;
    if (error.code === 4001) return true;
    throw error;
  }
}
