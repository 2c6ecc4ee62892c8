import { expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import '../../src/db/closed-connections.js';

interface Connection {
  destroy(): void;
  writeCommand(...args: unknown[]): Promise<void>;
}

declare const requireCompiled: (path: string) => { Connection: { prototype: Connection } };
const { Connection } = requireCompiled('mongodb/lib/cmap/connection.js');

it('a command whose connection closes before it is written ends', async () => {
  const client = await mongoose.mongo.MongoClient.connect(process.env.TEST_MONGODB_URI ?? '', { retryReads: false });
  const { writeCommand } = Connection.prototype;
  Connection.prototype.writeCommand = function (...args) {
    Connection.prototype.writeCommand = writeCommand;
    const written = writeCommand.apply(this, args);
    this.destroy();
    return written;
  };
  try {
    await expect(client.db('admin').command({ ping: 1 })).rejects.toThrow(/closed/);
    expect(await client.db('admin').command({ ping: 1 })).toMatchObject({ ok: 1 });
  } finally {
    Connection.prototype.writeCommand = writeCommand;
    await client.close();
  }
});
