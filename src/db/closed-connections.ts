import { createRequire } from 'node:module';
import type { Socket } from 'node:net';

/** Members of a class of the driver that no package exports. */
interface DriverConnection {
  prototype: { readonly socket: Socket; cleanup(error: Error): void };
}

const requireOfMongoose = createRequire(createRequire(import.meta.url).resolve('mongoose'));
const { Connection } = requireOfMongoose('mongodb/lib/cmap/connection.js') as { Connection: DriverConnection };
const { cleanup } = Connection.prototype;

/**
 * Ends the commands that are being written to a connection when it closes. The driver, up to 7.9, waits for `drain`, which a
 * closed socket never emits: the command would never end, nor would the batch that it belongs to.
 */
Connection.prototype.cleanup = function (this: DriverConnection['prototype'], error) {
  cleanup.call(this, error);
  // after those that have looked at the connection before it closed
  setImmediate(() => this.socket.emit('drain'));
};
