import { focusManager } from '@tanstack/react-query';
import { useEffect, useRef, useState, useSyncExternalStore } from 'react';
import { wait } from '../lib/wait.js';
import { type Query, send } from './client.js';
import { isTemporary, RequestError } from './errors.js';
import { type LiveMessage, readMessages } from './event-stream.js';

const reconnect_ms = 2000;

/**
 * Calls `onMessage` for each event of a feed, and connects again, behind the last one, after the connection has ended or
 * the tab was hidden, which `isInBackground` ignores. `EventSource` cannot send the header with the key.
 * @returns whether it is connected
 */
export function useLive(
  path: string,
  query: Query,
  isOn: boolean,
  onMessage: (message: LiveMessage) => void,
  isInBackground = false,
): boolean {
  const [isConnected, setConnected] = useState(false);
  const isHidden = useSyncExternalStore(focusManager.subscribe, () => !focusManager.isFocused());
  const isPaused = isHidden && !isInBackground;
  const latest = useRef(onMessage);
  const last = useRef<Position>({});
  useEffect(() => {
    latest.current = onMessage;
  });
  const search = JSON.stringify(query);
  useEffect(() => {
    if (!isOn || isPaused) return;
    const feed = `${path} ${search}`;
    if (last.current.feed !== feed) last.current = { feed };
    const stop = new AbortController();
    const report = (isOpen: boolean) => {
      if (!stop.signal.aborted) setConnected(isOpen);
    };
    const onEach = (message: LiveMessage) => latest.current(message);
    void follow({ path, query: JSON.parse(search) as Query, last: last.current, signal: stop.signal }, onEach, report);
    return () => {
      stop.abort();
      setConnected(false);
    };
  }, [path, search, isOn, isPaused]);
  return isConnected;
}

/** The last message of a feed, after which it continues. */
interface Position {
  feed?: string;
  id?: string;
}

interface Following {
  path: string;
  query: Query;
  last: Position;
  signal: AbortSignal;
}

async function follow(
  { path, query, last, signal }: Following,
  onMessage: (message: LiveMessage) => void,
  onConnection: (isOpen: boolean) => void,
): Promise<void> {
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
      if (error instanceof RequestError && !isTemporary(error)) {
        // a key without rights, or a filter that is wrong, stays so; an id may have become too old
        if (last.id === undefined) return;
        delete last.id;
        continue;
      }
    }
    onConnection(false);
    await wait(reconnect_ms, signal);
  }
}
