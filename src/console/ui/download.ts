import { type Query, send } from '../api/client.js';
import { describeError } from '../api/errors.js';
import { announce } from '../lib/announcements.js';
import { createStore } from '../lib/store.js';

const revoke_delay_ms = 10_000;

interface Download {
  id: number;
  name: string;
  received_bytes: number;
  cancel(): void;
}

interface DownloadOptions {
  path: string;
  query?: Query;
  /** Media type to ask for. */
  accept: string;
  name: string;
}

export const downloads = createStore<readonly Download[]>([]);

/** Reads a file of the service and lets the browser store it; `<Downloads>` shows the progress and a way to cancel. */
export async function startDownload({ path, query = {}, accept, name }: DownloadOptions): Promise<void> {
  const stop = new AbortController();
  const id = (downloads.read().at(-1)?.id ?? 0) + 1;
  downloads.write([...downloads.read(), { id, name, received_bytes: 0, cancel: () => stop.abort() }]);
  const report = (received_bytes: number) =>
    downloads.write(downloads.read().map((running) => (running.id === id ? { ...running, received_bytes } : running)));
  try {
    const response = await send('GET', path, { query, headers: { Accept: accept }, signal: stop.signal });
    saveFile(await readBlob(response, report), name);
    announce(`Downloaded ${name}.`);
  } catch (error) {
    announce(stop.signal.aborted ? `The download of ${name} is cancelled.` : describeError(error));
  } finally {
    downloads.write(downloads.read().filter((download) => download.id !== id));
  }
}

async function readBlob(response: Response, onProgress: (received_bytes: number) => void): Promise<Blob> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let received_bytes = 0;
  const reader = response.body?.getReader();
  for (let part = await reader?.read(); part?.done === false; part = await reader?.read()) {
    parts.push(part.value as Uint8Array<ArrayBuffer>);
    received_bytes += part.value.length;
    onProgress(received_bytes);
  }
  return new Blob(parts, { type: response.headers.get('Content-Type') ?? '' });
}

/** Lets the browser save a file. */
export function saveFile(content: Blob, name: string): void {
  const url = URL.createObjectURL(content);
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), revoke_delay_ms);
}
