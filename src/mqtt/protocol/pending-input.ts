import type { Duplex } from 'node:stream';
import { packet_limit_bytes } from './packet-limits.js';

/** The bytes of a connection that waits for its login. */
export interface PendingInput {
  /** Aborts when the client is gone. */
  readonly gone: AbortSignal;
  /** Stops reading. @returns all bytes received so far, CONNECT included */
  release(): Buffer;
}

/**
 * Keeps reading while a login is pending, because a paused stream does not report that its client has left.
 * @param reserve reserves memory for the next bytes; the connection is closed if it returns false
 */
export function holdInput(
  stream: Duplex,
  received: readonly Buffer[],
  reserve: (bytes: number) => boolean,
): PendingInput {
  const chunks = [...received];
  const gone = new AbortController();
  let pending_bytes = 0;

  const onGone = () => gone.abort(new Error('closed'));

  function receive(chunk: Buffer): void {
    pending_bytes += chunk.length;
    chunks.push(chunk);
    if (!reserve(chunk.length)) stream.destroy();
    else if (pending_bytes >= packet_limit_bytes) stream.pause();
  }

  if (stream.readableEnded || stream.destroyed) onGone();
  stream.on('data', receive).on('end', onGone).on('close', onGone);
  return {
    gone: gone.signal,
    release() {
      stream.off('data', receive).off('end', onGone).off('close', onGone);
      stream.pause();
      return Buffer.concat(chunks);
    },
  };
}
