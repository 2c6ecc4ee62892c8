import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

/** A way to mongod on which replies can be held back. */
export interface MongoProxy {
  /** The address of a database behind it. */
  uriOf(database: string): string;
  /** Holds back what mongod replies to commands that contain the text. @returns what hands it on */
  hold(text: string): { countHeld(): number; release(): void };
  close(): Promise<void>;
}

/** Opens a way to the mongod of the tests. */
export async function openMongoProxy(): Promise<MongoProxy> {
  const mongod = new URL(process.env.TEST_MONGODB_URI ?? '');
  const sockets = new Set<Socket>();
  const held = new Set<Socket>();
  let text: string | undefined;
  const proxy = createServer((client) => {
    const server = connect(Number(mongod.port), mongod.hostname);
    for (const socket of [client, server]) {
      sockets.add(socket);
      socket.on('error', () => undefined);
      socket.on('close', () => {
        client.destroy();
        server.destroy();
      });
    }
    client.on('data', (chunk) => {
      if (text !== undefined && chunk.includes(text)) held.add(server.pause());
      server.write(chunk);
    });
    server.on('data', (chunk) => client.write(chunk));
  }).listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  const { port } = proxy.address() as AddressInfo;
  return {
    uriOf: (database) => `mongodb://127.0.0.1:${port}/${database}?directConnection=true`,
    hold(wanted) {
      text = wanted;
      return {
        countHeld: () => held.size,
        release() {
          text = undefined;
          for (const socket of held) socket.resume();
          held.clear();
        },
      };
    },
    async close() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => proxy.close(resolve));
    },
  };
}
