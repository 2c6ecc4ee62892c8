import { type Query, send } from './api/client.js';
import { describeError } from './api/errors.js';
import { announce } from './components/feedback.js';

const revoke_delay_ms = 10_000;

/** A download that is being read. */
export interface Download {
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
  /** Name of the file. */
  name: string;
}

const state: { downloads: readonly Download[]; count: number } = { downloads: [], count: 0 };
const listeners = new Set<() => void>();

function change(downloads: readonly Download[]): void {
  state.downloads = downloads;
  for (const listener of listeners) listener();
}

/** Calls `listener` when a download begins, gets on or ends. @returns a function that ends this */
export function listenToDownloads(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Returns the downloads in progress. */
export function readDownloads(): readonly Download[] {
  return state.downloads;
}

/** Reads a file of the service and lets the browser store it; `<Downloads>` shows the progress and a way to cancel. */
export async function startDownload({ path, query = {}, accept, name }: DownloadOptions): Promise<void> {
  const stop = new AbortController();
  const id = ++state.count;
  change([...state.downloads, { id, name, received_bytes: 0, cancel: () => stop.abort() }]);
  try {
    const response = await send('GET', path, { query, headers: { Accept: accept }, signal: stop.signal });
    store(await readBlob(response, (received_bytes) => report(id, received_bytes)), name);
    announce(`Downloaded ${name}.`);
  } catch (error) {
    announce(stop.signal.aborted ? `The download of ${name} is cancelled.` : describeError(error));
  } finally {
    change(state.downloads.filter((download) => download.id !== id));
  }
}

function report(id: number, received_bytes: number): void {
  change(state.downloads.map((download) => (download.id === id ? { ...download, received_bytes } : download)));
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

function store(content: Blob, name: string): void {
  const url = URL.createObjectURL(content);
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), revoke_delay_ms);
}
