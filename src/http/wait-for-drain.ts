import type { Response } from 'express';

/**
 * Waits until the client has read enough, or the response or `ended` ends. Events of node would stay behind: with
 * compression, `on` adds a listener to the compressor, where `off` of the response does not find it.
 */
export function waitForDrain(response: Response, ended?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const settle = () => {
      drained.off('drain', settle);
      response.off('close', settle);
      ended?.removeEventListener('abort', settle);
      resolve();
    };
    // the compressor, if there is one
    const drained = response.on('drain', settle);
    response.once('close', settle);
    ended?.addEventListener('abort', settle);
    if (response.destroyed || ended?.aborted) settle();
  });
}
