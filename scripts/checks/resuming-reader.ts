import { setTimeout as sleep } from 'node:timers/promises';
import { type Follower, follow, type Message } from '../support/follow.js';

/** A reader of a live feed that comes back with the last id whenever the feed ends. */
export type ResumingReader = ReturnType<typeof startResumingReader>;

const retry_ms = 20;

/** Follows a feed. @param url returns its address, which may be another after each start of the service */
export function startResumingReader(url: () => string, key: string) {
  const messages: Message[] = [];
  const refusals: string[] = [];
  const stopped = new AbortController();
  let [last_id, first_id] = ['', ''];
  let [connections, overflows] = [0, 0];
  let current: Follower | undefined;

  async function readOnce(): Promise<void> {
    const resume = last_id === '' ? undefined : { 'Last-Event-ID': last_id };
    const follower = await follow(url(), { 'service.apikey': key, ...resume });
    current = follower;
    if (follower.status === 200) {
      connections++;
      if (first_id === '') {
        await follower.contains('\n\n');
        first_id = follower.lastId();
      }
    }
    await follower.ended.catch(() => undefined);
    if (follower.status !== 200 && follower.status !== 503) refusals.push(`${follower.status} ${follower.text()}`);
    overflows += follower.messages.filter(({ event }) => event === 'overflow').length;
    messages.push(...follower.messages.filter(({ event }) => event !== 'overflow'));
    last_id = follower.lastId() || last_id;
    current = undefined;
  }

  async function run(): Promise<void> {
    while (!stopped.signal.aborted) {
      await readOnce().catch(() => undefined);
      await sleep(retry_ms);
    }
  }

  const running = run();
  return {
    /** All that came, over all connections. */
    get messages(): readonly Message[] {
      return [...messages, ...(current?.messages ?? []).filter(({ event }) => event !== 'overflow')];
    },
    /** The id with which the first connection began. */
    first_id: () => first_id,
    /** Times that the service has accepted a connection. */
    connections: () => connections,
    /** Connections that ended with `overflow`. */
    overflows: () => overflows,
    /** Answers other than 200, apart from those of a service that is starting. */
    refusals,
    async close(): Promise<void> {
      stopped.abort();
      await current?.close();
      await running;
    },
  };
}
