import { setMaxListeners } from 'node:events';
import type { ServerResponse } from 'node:http';

/** Creates a signal that aborts when the client can no longer get the response, as its connection is closed. */
export function createCloseSignal(response: ServerResponse): AbortSignal {
  const closed = new AbortController();
  // each of the 256 lines of an import that are in work may wait for its turn
  setMaxListeners(0, closed.signal);
  if (response.destroyed) closed.abort();
  response.once('close', () => closed.abort());
  return closed.signal;
}
