import { useEffect, useRef } from 'react';
import { type Query, send } from './client.js';
import { isTemporary, RequestError } from './errors.js';
import { type LiveMessage, readMessages } from './event-stream.js';

const reconnect_ms = 2000;

/**
 * Calls `onMessage` for each event of a feed, and connects again, without gap, after the connection has ended.
 * `EventSource` cannot send the header with the key.
 */
export function useLive(path: string, query: Query, isOn: boolean, onMessage: (message: LiveMessage) => void): void {
  const latest = useRef(onMessage);
  useEffect(() => {
    latest.current = onMessage;
  });
  const search = JSON.stringify(query);
  useEffect(() => {
    if (!isOn) return;
    const stop = new AbortController();
    void follow(path, JSON.parse(search) as Query, stop.signal, (message) => latest.current(message));
    return () => stop.abort();
  }, [path, search, isOn]);
}

async function follow(
  path: string,
  query: Query,
  signal: AbortSignal,
  onMessage: (message: LiveMessage) => void,
): Promise<void> {
  const last: { id: string | undefined } = { id: undefined };
  while (!signal.aborted) {
    try {
      const headers = { Accept: 'text/event-stream', ...(last.id !== undefined && { 'Last-Event-ID': last.id }) };
      const { body } = await send('GET', path, { query, signal, headers });
      for await (const message of readMessages(body, signal)) {
        if (message.event === 'overflow') break;
        if (message.id !== '') last.id = message.id;
        onMessage(message);
      }
    } catch (error) {
      // a key without rights, or a filter that is wrong, stays so
      if (error instanceof RequestError && !isTemporary(error)) return;
    }
    await wait(reconnect_ms, signal);
  }
}

function wait(time_ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, time_ms);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
