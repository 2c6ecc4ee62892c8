import type { Duplex } from 'node:stream';
import { findPublishes } from '../connection/frames.js';

/** No more is read before the login. */
const max_pending_bytes = 64 * 1024;

/** The bytes of a connection that waits for its login. */
export type PendingInput = ReturnType<typeof holdInput>;

/**
 * Keeps reading while a login is pending, because a paused stream does not report that its client has left.
 * @param reserve reserves memory for the next bytes; the connection is closed if it returns false
 */
export function holdInput(stream: Duplex, received: Buffer, reserve: (bytes: number) => boolean) {
  const chunks = [received];
  const gone = new AbortController();
  let pending_bytes = 0;

  const onGone = () => gone.abort(new Error('closed'));
  const onLeft = () => {
    if (findPublishes(Buffer.concat(chunks)).length === 0) onGone();
  };

  function receive(chunk: Buffer): void {
    pending_bytes += chunk.length;
    chunks.push(chunk);
    if (!reserve(chunk.length)) {
      onGone();
      stream.destroy();
    } else if (pending_bytes >= max_pending_bytes) stream.pause();
  }

  if (stream.destroyed || stream.readableEnded) onLeft();
  stream.on('data', receive).on('end', onLeft).on('close', onLeft);
  return {
    /** Aborts when the client is gone and has left no message. */
    gone: gone.signal,
    /** Stops reading. @returns all bytes received after CONNECT */
    release(): Buffer {
      stream.off('data', receive).off('end', onLeft).off('close', onLeft);
      stream.pause();
      return Buffer.concat(chunks);
    },
  };
}
