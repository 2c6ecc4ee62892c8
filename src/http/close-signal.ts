import { setMaxListeners } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { Response } from 'express';
import type { SlotClient } from '../lib/shares.js';

/** One for all: the error that `abort` would create of its own accord takes 2 % of a page. */
const clientLeft = new Error('the client has left');

/** Creates a signal that aborts when the client can no longer get the response, as its connection is closed. */
export function createCloseSignal(response: ServerResponse): AbortSignal {
  const closed = new AbortController();
  // each of the 256 lines of an import that are in work may wait for its turn
  setMaxListeners(0, closed.signal);
  const leave = () => closed.abort(clientLeft);
  if (response.destroyed) leave();
  response.once('close', leave);
  return closed.signal;
}

const sending_limit_ms = 10_000;
/** Longer than 10 s, as the buffers of the network take an answer in large pieces. */
const taking_limit_ms = 30_000;

/** Creates what pools know of the client of a response (reference/limits.md#shares). */
export function createSlotClient(response: Response): SlotClient {
  const { req: request } = response;
  const { socket } = request;
  return {
    moved: () => socket.bytesRead + socket.bytesWritten - socket.writableLength,
    limit_ms() {
      if (socket.writableLength > 0) return taking_limit_ms;
      // what has arrived and is not read waits for the service
      return request.complete || request.readableLength > 0 ? Number.POSITIVE_INFINITY : sending_limit_ms;
    },
    drop: () => void socket.destroy(),
  };
}
