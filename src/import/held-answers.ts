import { deflateRawSync, inflateRawSync } from 'node:zlib';
import { createCloseSignal } from '../http/close-signal.js';
import type { RequestContext } from '../http/context.js';
import { waitForDrain } from '../http/send.js';
import type { Reservation } from '../lib/shares.js';

/** Text that is compressed together. */
const block_bytes = 256 * 1024;
/** Memory of unread answers that each import has; more is reserved in steps. */
export const held_memory_bytes = 4 * 1024 * 1024;
const step_bytes = 1024 * 1024;

/** The answers to lines, in the memory of an import until the client reads them. */
export type HeldAnswers = ReturnType<typeof holdAnswers>;

/** Holds answers, compressed to a tenth, until `begin`, and then as long as the client does not read them. */
export function holdAnswers(response: RequestContext['response'], memory: Pick<Reservation, 'add'>) {
  const signal = createCloseSignal(response);
  const blocks: Buffer[] = [];
  let text = '';
  let held_bytes = 0;
  let reserved_bytes = held_memory_bytes;
  let hasBegun = false;
  let canWrite = true;

  function send(): void {
    while (hasBegun && canWrite && !signal.aborted && (blocks.length > 0 || text !== '')) {
      const block = blocks.shift();
      held_bytes -= block?.length ?? 0;
      canWrite = response.write(block === undefined ? text : inflateRawSync(block));
      if (block === undefined) text = '';
    }
  }

  /** Begins to send: proxies such as nginx send no more of the body from then on. */
  function begin(): void {
    if (!hasBegun) response.flushHeaders();
    hasBegun = true;
    send();
  }

  function hold(): void {
    const block = deflateRawSync(text, { level: 1 });
    text = '';
    blocks.push(block);
    held_bytes += block.length;
  }

  /** Reserves what the answers take. @returns false if there is not so much */
  function reserve(): boolean {
    try {
      for (; held_bytes > reserved_bytes; reserved_bytes += step_bytes) memory.add(step_bytes);
      return true;
    } catch {
      return false;
    }
  }

  response.on('drain', () => {
    canWrite = true;
    send();
  });
  return {
    /** Aborts when the client leaves. */
    signal,
    begin,
    /** Sends the texts of one turn of the event loop together. Waits for the client if there is no memory to hold them. */
    async add(added: string): Promise<void> {
      if (signal.aborted) return;
      if (text === '') setImmediate(send);
      text += added;
      if (text.length > block_bytes) hold();
      while (!reserve() && !signal.aborted) {
        begin();
        if (!canWrite) await waitForDrain(response, signal);
      }
    },
    /** Ends the response with `last`, once the client has read what is before it. */
    async end(last: string): Promise<void> {
      begin();
      while (!canWrite && !signal.aborted) await waitForDrain(response, signal);
      response.end(text + last);
    },
  };
}
