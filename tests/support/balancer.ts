import { once } from 'node:events';
import { get } from 'node:http';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** An instance of the service behind a balancer. */
export interface Backend {
  url: string;
  mqtt_port: number;
}

/** A round-robin TCP balancer. It hands on connections and never repeats what was sent on them. */
export interface Balancer {
  url: string;
  mqtt_url: string;
  /** Waits until as many backends get connections. */
  waitForReady(count: number): Promise<void>;
  /** Connections that no backend was ready for, or that a backend refused. */
  countRefused(): number | Promise<number>;
  close(): Promise<void>;
}

interface Place extends Backend {
  isReady: boolean;
}

/** Period of the health checks, as balancers have it, and the time after which a silent one changes nothing. */
const check_period_ms = 500;
const check_limit_ms = 1000;

/** Starts a balancer for HTTP and MQTT. A backend gets connections while its `/readyz` answers 200. */
export async function startBalancer(backends: readonly Backend[]): Promise<Balancer> {
  const places: Place[] = backends.map((backend) => ({ ...backend, isReady: false }));
  const stopped = new AbortController();
  const sockets = new Set<Socket>();
  let refused = 0;

  async function check(place: Place): Promise<void> {
    while (!stopped.signal.aborted) {
      place.isReady = (await isReady(place.url)) ?? place.isReady;
      await sleep(check_period_ms, undefined, { signal: stopped.signal }).catch(() => undefined);
    }
  }

  function join(client: Socket, port: number | undefined): void {
    const server = port === undefined ? undefined : connect({ port, host: '127.0.0.1', allowHalfOpen: true });
    if (server === undefined) {
      refused++;
      client.destroy();
      return;
    }
    server.once('error', ({ syscall }: NodeJS.ErrnoException) => {
      if (syscall === 'connect') refused++;
    });
    for (const [from, to] of [
      [client, server],
      [server, client],
    ] as const) {
      from.setNoDelay();
      sockets.add(from);
      from.pipe(to);
      from.on('error', () => to.destroy());
      from.once('close', () => {
        sockets.delete(from);
        // an end that was passed on is followed by what the other side still sends
        if (!from.readableEnded) to.destroy();
      });
    }
  }

  function serve(portOf: (place: Place) => number): Promise<Server> {
    let next = 0;
    const server = createServer({ allowHalfOpen: true }, (client) => {
      const ready = places.filter((place) => place.isReady);
      const place = ready[next++ % Math.max(1, ready.length)];
      join(client, place && portOf(place));
    });
    server.listen(0, '127.0.0.1');
    return once(server, 'listening').then(() => server);
  }

  const checking = places.map(check);
  const http = await serve(({ url }) => Number(new URL(url).port));
  const mqtt = await serve(({ mqtt_port }) => mqtt_port);
  const portOf = (server: Server) => (server.address() as AddressInfo).port;
  return {
    url: `http://127.0.0.1:${portOf(http)}`,
    mqtt_url: `mqtt://127.0.0.1:${portOf(mqtt)}`,
    async waitForReady(count) {
      while (places.filter((place) => place.isReady).length !== count) await sleep(check_period_ms);
    },
    countRefused: () => refused,
    async close() {
      stopped.abort();
      for (const server of [http, mqtt]) server.close();
      for (const socket of sockets) socket.destroy();
      await Promise.all(checking);
    },
  };
}

/** Asks on a connection of its own: an open one would be closed at every restart. @returns undefined if unanswered */
function isReady(url: string): Promise<boolean | undefined> {
  return new Promise((resolve) => {
    const request = get(`${url}/readyz`, { agent: false, timeout: check_limit_ms }, (response) => {
      response.resume();
      resolve(response.statusCode === 200);
    });
    request.on('timeout', () => {
      resolve(undefined);
      request.destroy();
    });
    request.on('error', () => resolve(false));
  });
}
