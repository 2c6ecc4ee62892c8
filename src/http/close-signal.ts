import type { ServerResponse } from 'node:http';

/** Creates a signal that aborts when the client can no longer get the response, as its connection is closed. */
export function createCloseSignal(response: ServerResponse): AbortSignal {
  const closed = new AbortController();
  if (response.destroyed) closed.abort();
  response.once('close', () => closed.abort());
  return closed.signal;
}
