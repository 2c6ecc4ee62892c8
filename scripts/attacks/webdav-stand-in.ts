import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** A WebDAV server with one folder of files, which misbehaves on demand. */
export interface StandIn {
  url: string;
  /** Number of files in the folder. */
  files: number;
  /** XML that a listing has after the files. */
  extra: string;
  /** Requests are accepted and not answered. */
  isStalled: boolean;
  stop(): Promise<void>;
}

const root = '/dav/';
const head = '<?xml version="1.0"?><d:multistatus xmlns:d="DAV:">';

/** Starts a server on 127.0.0.1 that knows PROPFIND, GET and HEAD. */
export async function startStandIn(): Promise<StandIn> {
  const server = createServer((request, response) => {
    request.resume();
    response.on('error', () => undefined);
    if (standIn.isStalled) return;
    if (request.method !== 'PROPFIND') response.end('content of the file');
    else sendListing(response, standIn, request.headers.depth === '0');
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const standIn: StandIn = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}${root}`,
    files: 1,
    extra: '',
    isStalled: false,
    async stop() {
      server.close();
      server.closeAllConnections();
      await once(server, 'close');
    },
  };
  return standIn;
}

function sendListing(response: ServerResponse, { files, extra }: StandIn, isFolderOnly: boolean): void {
  const folder = formatEntry(root, '<d:resourcetype><d:collection/></d:resourcetype>');
  const properties = '<d:getcontentlength>1</d:getcontentlength>';
  const entries = Array.from({ length: isFolderOnly ? 0 : files }, (_, n) =>
    formatEntry(`${root}file-${n}`, properties),
  );
  response.writeHead(207, { 'Content-Type': 'application/xml' });
  response.end(`${head}${folder}${entries.join('')}${isFolderOnly ? '' : extra}</d:multistatus>`);
}

function formatEntry(href: string, properties: string): string {
  return `<d:response><d:href>${href}</d:href><d:propstat><d:prop>${properties}</d:prop></d:propstat></d:response>`;
}
