import type { Response } from 'express';
import type { ListFormat } from '../schema/list-parameters.js';

export const contentTypes: Readonly<Record<ListFormat, string>> = {
  json: 'application/json; charset=utf-8',
  xml: 'application/xml; charset=utf-8',
  csv: 'text/csv; charset=utf-8',
  ndjson: 'application/x-ndjson; charset=utf-8',
};

/** Bodies up to this size go out in one write with the headers. */
const single_write_limit_bytes = 4096;

/** Sends a body that is held in memory. */
export function send(response: Response, status: number, format: ListFormat, body: Buffer): void {
  response.statusCode = status;
  response.setHeader('Content-Type', contentTypes[format]);
  response.setHeader('Content-Length', body.length);
  setVary(response);
  if (body.length > single_write_limit_bytes) response.end(body);
  else response.end(body.toString('latin1'), 'latin1');
}

/** Names the headers that choose format and compression. */
export function setVary(response: Response): void {
  const others = response.getHeader('Vary');
  const own = 'Accept, Accept-Encoding';
  response.setHeader('Vary', others === undefined ? own : `${others}, ${own}`);
}

/**
 * Waits until the client has read enough, or the response or `ended` ends. Events of node would stay behind: with
 * compression, `on` adds a listener to the compressor, where `off` of the response does not find it.
 */
export function waitForDrain(response: Response, ended?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const endWait = () => {
      drained.off('drain', endWait);
      response.off('close', endWait);
      ended?.removeEventListener('abort', endWait);
      resolve();
    };
    // the compressor, if there is one
    const drained = response.on('drain', endWait);
    response.once('close', endWait);
    ended?.addEventListener('abort', endWait);
    if (response.destroyed || ended?.aborted) endWait();
  });
}
