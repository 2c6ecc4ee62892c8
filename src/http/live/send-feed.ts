import type { Response } from 'express';
import type { Log } from '../../db/database.js';
import { AppError } from '../../errors.js';
import { createRateLimitedLog } from '../../lib/rate-limited-log.js';
import type { Shares } from '../../lib/shares.js';
import { localsOf, type RequestContext } from '../context.js';
import { waitForDrain } from '../send.js';
import type { Feed, FeedSink } from './feed.js';
import type { FeedKind, LiveConnection, LiveFeeds } from './live-feeds.js';

interface SendOptions {
  kind: FeedKind;
  open(costly: Shares): Promise<Feed>;
}

/** Sends feeds as server-sent events (reference/events.md#live-feeds). */
export type SendFeed = (ctx: RequestContext, options: SendOptions) => Promise<void>;

/**
 * Creates the sender of live feeds. It returns when the headers are sent: what follows takes no slot of the requests in
 * work, but is counted by `live`.
 */
export function createFeedSender(live: LiveFeeds, log: Log): SendFeed {
  const warn = createRateLimitedLog(log);
  return async ({ request, response, principal, store }, { kind, open }) => {
    if (request.method === 'HEAD') {
      setHeaders(response);
      response.end();
      return;
    }
    const connection = live.admit(kind, principal);
    let feed: Feed | undefined;
    try {
      feed = await open(store.costly);
      if (connection.ended.aborted) throw new AppError('overloaded');
    } catch (error) {
      connection.release();
      await feed?.close();
      throw error;
    }
    run(response, feed, connection)
      .then((outcome) => outcome === 'overflow' && live.overflowed(kind))
      .catch((error: unknown) => warn('a live feed was broken off', { err: error }));
  };

  async function run(response: Response, feed: Feed, connection: LiveConnection): Promise<'ended' | 'overflow'> {
    const { socket } = response.req;
    const { ended, end } = connection;
    try {
      response.once('close', end);
      // most readers that leave close their side only, and nothing else says so before the next write
      socket.once('end', end);
      // the client has left already, or the time limit of the request has been reported
      if (response.destroyed || response.headersSent) return 'ended';
      setHeaders(response);
      response.flushHeaders();
      localsOf(response).answered_at_ms = performance.now();
      return await feed.send(createSink(response, ended), ended);
    } catch (error) {
      // a reader may leave while it waits for its share of the database
      if (!ended.aborted) warn('a live feed was broken off', { err: error, request_id: localsOf(response).request_id });
      return 'ended';
    } finally {
      socket.off('end', end);
      // a reader that takes no more would delay the end of the service
      if (ended.aborted && response.writableNeedDrain) response.destroy();
      else response.end();
      connection.release();
      await feed.close().catch(() => undefined);
    }
  }
}

function setHeaders(response: Response): void {
  response.statusCode = 200;
  response.setHeader('Content-Type', 'text/event-stream');
  response.setHeader('Cache-Control', 'no-store');
  // proxies such as nginx pass on what comes instead of collecting it
  response.setHeader('X-Accel-Buffering', 'no');
}

function createSink(response: Response, ended: AbortSignal): FeedSink {
  return {
    write: (frame) => response.write(frame),
    drained: () => waitForDrain(response, ended),
  };
}
