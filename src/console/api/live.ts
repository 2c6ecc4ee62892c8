import { useEffect, useRef, useState } from 'react';
import { type Query, send } from './client.js';
import { isTemporary, RequestError } from './errors.js';
import { type LiveMessage, readMessages } from './event-stream.js';

const reconnect_ms = 2000;

/**
 * Calls `onMessage` for each event of a feed, and connects again, without gap, after the connection has ended.
 * `EventSource` cannot send the header with the key. @returns whether it is connected
 */
export function useLive(path: string, query: Query, isOn: boolean, onMessage: (message: LiveMessage) => void): boolean {
  const [isConnected, setConnected] = useState(false);
  const latest = useRef(onMessage);
  useEffect(() => {
    latest.current = onMessage;
  });
  const search = JSON.stringify(query);
  useEffect(() => {
    if (!isOn) return;
    const stop = new AbortController();
    const report = (isOpen: boolean) => {
      if (!stop.signal.aborted) setConnected(isOpen);
    };
    void follow(path, JSON.parse(search) as Query, stop.signal, (message) => latest.current(message), report);
    return () => {
      stop.abort();
      setConnected(false);
    };
  }, [path, search, isOn]);
  return isConnected;
}

async function follow(
  path: string,
  query: Query,
  signal: AbortSignal,
  onMessage: (message: LiveMessage) => void,
  onConnection: (isOpen: boolean) => void,
): Promise<void> {
  const last: { id: string | undefined } = { id: undefined };
  while (!signal.aborted) {
    try {
      const headers = { Accept: 'text/event-stream', ...(last.id !== undefined && { 'Last-Event-ID': last.id }) };
      const { body } = await send('GET', path, { query, signal, headers });
      onConnection(true);
      for await (const message of readMessages(body, signal)) {
        if (message.event === 'overflow') break;
        if (message.id !== '') last.id = message.id;
        onMessage(message);
      }
    } catch (error) {
      // a key without rights, or a filter that is wrong, stays so
      if (error instanceof RequestError && !isTemporary(error)) return;
    }
    onConnection(false);
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
