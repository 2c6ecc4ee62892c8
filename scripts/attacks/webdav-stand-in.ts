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
    else void sendListing(response, standIn, request.headers.depth === '0');
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

async function sendListing(response: ServerResponse, { files, extra }: StandIn, isFolderOnly: boolean): Promise<void> {
  response.writeHead(207, { 'Content-Type': 'application/xml' });
  response.write(`${head}${formatEntry(root, '<d:resourcetype><d:collection/></d:resourcetype>')}`);
  const total = isFolderOnly ? 0 : files;
  for (let first = 0; first < total && !response.destroyed; first += 1000) {
    const count = Math.min(1000, total - first);
    const entries = Array.from({ length: count }, (_, n) =>
      formatEntry(`${root}file-${first + n}`, '<d:getcontentlength>1</d:getcontentlength>'),
    );
    if (!response.write(entries.join(''))) await Promise.race([once(response, 'drain'), once(response, 'close')]);
  }
  response.end(`${isFolderOnly ? '' : extra}</d:multistatus>`);
}

function formatEntry(href: string, properties: string): string {
  return `<d:response><d:href>${href}</d:href><d:propstat><d:prop>${properties}</d:prop></d:propstat></d:response>`;
}
