// Creates a webhook, receives its events, and verifies their signatures. Ctrl-C or SIGTERM deletes the webhook and ends the
// program; one that a crash has left behind is replaced at the next start.
//
//   npm install standardwebhooks
//   DEVICE_PLATFORM_URL=http://127.0.0.1:3000 API_KEY=… PUBLIC_ADDRESS=https://hooks.example PORT=8080 npx tsx receiver.ts
//
// API_KEY has the scope admin. The service must be able to reach PUBLIC_ADDRESS: by default that is this machine, which
// needs WEBHOOK_ALLOW_NETS=127.0.0.0/8 in the environment of the service.
import { createServer } from 'node:http';
import { Webhook } from 'standardwebhooks';

const { DEVICE_PLATFORM_URL = 'http://127.0.0.1:3000', API_KEY = '', PORT = '8080' } = process.env;
const { PUBLIC_ADDRESS = `http://127.0.0.1:${PORT}` } = process.env;
const max_body_bytes = 1024 * 1024;
const max_seen = 10_000;

interface PlatformEvent {
  id: string;
  type: string;
  id_developer: string;
}

/** Sends a request and returns the body of the answer, which may be an error. */
async function send(method: string, path: string, body?: object) {
  const response = await fetch(DEVICE_PLATFORM_URL + path, {
    method,
    headers: { 'service.apikey': API_KEY, 'Content-Type': 'application/json' },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  const { code, details } = (await response.json()) as { code: number; details: Record<string, string> };
  return { code, details, location: response.headers.get('Location') ?? '' };
}

let webhook: Webhook | undefined;
/** Ids of events that were handled: an event may be sent more than once. */
const seen = new Set<string>();

function handle({ id, type, id_developer }: PlatformEvent): void {
  if (seen.has(id)) return;
  seen.add(id);
  const [oldest] = seen;
  if (seen.size > max_seen && oldest !== undefined) seen.delete(oldest);
  console.log(`${type} ${id_developer}`);
}

const server = createServer(async (request, response) => {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of request) {
    length += chunk.length;
    if (length > max_body_bytes) {
      response.writeHead(413).end();
      return;
    }
    chunks.push(chunk);
  }
  try {
    // the signature covers the bytes as they came, so they are not parsed before
    const event = webhook?.verify(Buffer.concat(chunks), request.headers as Record<string, string>);
    if (event === undefined) throw new Error('the secret is not known yet');
    // answered before the work, which may take longer than the service waits
    response.writeHead(204).end();
    handle(event as PlatformEvent);
  } catch (error) {
    console.log(`refused: ${error instanceof Error ? error.message : error}`);
    response.writeHead(401).end();
  }
});

async function main(): Promise<void> {
  const name = 'Example receiver';
  const former = (await (
    await fetch(`${DEVICE_PLATFORM_URL}/webhooks/?name=${encodeURIComponent(name)}`, {
      headers: { 'service.apikey': API_KEY },
    })
  ).json()) as { result?: { id_developer: string }[] };
  for (const { id_developer } of former.result ?? [])
    await send('DELETE', `/webhooks/${encodeURIComponent(id_developer)}/`);
  const { code, details, location } = await send('POST', '/webhooks/', {
    name,
    url: PUBLIC_ADDRESS,
    types: ['device.'],
  });
  if (code !== 2001) throw new Error(`the webhook was not created: ${JSON.stringify(details)}`);
  // the only time that the secret is shown: a program that runs for long stores it
  webhook = new Webhook(details.secret ?? '');
  console.log('listening');
  const tested = await send('POST', `${location}test/`);
  console.log(`test: ${tested.details.error ?? 'received'}`);
  const end = async () => {
    await send('DELETE', location);
    server.close(() => console.log('deleted'));
    server.closeAllConnections();
  };
  process.once('SIGINT', end).once('SIGTERM', end);
}

server.listen(Number(PORT), () => {
  main().catch((error: unknown) => {
    console.error(error instanceof Error ? error.message : error);
    process.exit(1);
  });
});
