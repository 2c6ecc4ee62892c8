import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import { AppError } from '../../src/errors.js';
import { createLog } from '../../src/lib/log.js';

const { MongoClient, MongoNetworkError } = mongoose.mongo;

/** The line that is logged of an error, and the parsed `err`. */
function logged(error: unknown, field = 'err') {
  const lines: string[] = [];
  const log = createLog('info', { write: (line: string) => void lines.push(line) });
  log.error({ request_id: 'r-1', [field]: error }, 'BD error');
  const [line = ''] = lines;
  return { line, err: JSON.parse(line)[field] };
}

async function failureOf(work: Promise<unknown>): Promise<Error> {
  return work.then(
    () => {
      throw new Error('does not fail');
    },
    (error: Error) => error,
  );
}

describe('errors of the database are logged without documents', () => {
  const client = new MongoClient(process.env.TEST_MONGODB_URI ?? '');
  const db = client.db(`test-${randomUUID()}`);
  const things = db.collection<{ _id: string; secret?: unknown; place?: unknown }>('things');
  const canary = 'canary-4711';

  beforeAll(async () => {
    await db.createCollection('things', {
      validator: { $jsonSchema: { properties: { secret: { not: { enum: [`${canary}-invalid`] } } } } },
    });
    await things.createIndex({ secret: 1 }, { unique: true, partialFilterExpression: { secret: { $type: 'string' } } });
    await things.createIndex({ place: '2dsphere' });
    await things.insertOne({ _id: 'first', secret: canary });
  });
  afterAll(async () => {
    await db.dropDatabase();
    await client.close();
  });

  it.each<[string, number, () => Promise<unknown>]>([
    ['a duplicate', 11000, () => things.insertOne({ _id: 'other', secret: canary })],
    [
      'an unordered batch with duplicates',
      11000,
      () =>
        things.insertMany(
          [1, 2, 3].map((n) => ({ _id: `${canary} ${n}`, secret: canary })),
          { ordered: false },
        ),
    ],
    [
      'a bulk write',
      11000,
      () =>
        things.bulkWrite([
          { updateOne: { filter: { _id: canary }, update: { $set: { secret: canary } }, upsert: true } },
        ]),
    ],
    [
      'a place that is none',
      16755,
      () => things.insertOne({ _id: canary, place: { type: 'Point', coordinates: [canary] } }),
    ],
    ['a document that a validator refuses', 121, () => things.insertOne({ _id: canary, secret: `${canary}-invalid` })],
    [
      'an update that does not fit',
      28,
      () => things.updateOne({ _id: 'first' }, { $set: { [`secret.${canary}`]: 1 } } as never),
    ],
  ])('%s', async (_what, code, work) => {
    const error = await failureOf(work());
    for (const given of [
      error,
      new AppError('database', {}, { cause: error }),
      new AggregateError([error], 'several'),
    ]) {
      const { line, err } = logged(given);
      expect(line).not.toMatch(/canary/);
      expect(JSON.stringify(err)).toContain(`"code":${code}`);
      expect(err.stack).toMatch(/^at .+:\d+:\d+/);
    }
    expect(logged(error).err).toMatchObject({ type: error.constructor.name, message: expect.any(String), code });
    // under any other name, where pino would print every property
    expect(logged(error, 'failure').line).not.toMatch(/canary/);
  });

  it('says how many writes of a batch failed', async () => {
    const documents = [1, 2, 3].map((n) => ({ _id: `many ${n}`, secret: canary }));
    const { err } = logged(await failureOf(things.insertMany(documents, { ordered: false })));
    expect(err).toMatchObject({ type: 'MongoBulkWriteError', code: 11000, write_errors: 3 });
    expect(err.message).toMatch(/^E11000 duplicate key error collection: \S+ index: secret_1 dup key: \{…\}$/);
  });
});

it('keeps what identifies other failures', async () => {
  const [refused] = await once(connect(1, '127.0.0.1'), 'error').catch((error: Error) => [error]);
  expect(logged(refused).err).toMatchObject({
    code: 'ECONNREFUSED',
    syscall: 'connect',
    address: '127.0.0.1',
    port: 1,
  });
  const { err } = logged(new AppError('invalid', { name: 'is taken' }, { cause: new Error("can't be stored") }));
  expect(err).toMatchObject({
    type: 'AppError',
    failure: 'invalid',
    details: { name: 'is taken' },
    cause: { type: 'Error', message: "can't be stored" },
  });
});

it('writes one line of an outage of the database, without a stack, whatever meets it', () => {
  const lines: string[] = [];
  const log = createLog('info', { write: (line: string) => void lines.push(line) });
  const outage = new MongoNetworkError('connect ECONNREFUSED 127.0.0.1:1');
  log.warn({ err: outage }, 'fleet-counts stalled; retrying');
  log.error({ request_id: 'r-1', err: new AppError('database', {}, { cause: outage }) }, 'BD error');
  log.error({ err: new Error('other') }, 'BD error');
  const [first, second] = lines.map((line) => JSON.parse(line));
  expect(first).toEqual({
    level: 50,
    time: expect.any(Number),
    msg: 'the database does not answer',
    reason: 'connect ECONNREFUSED 127.0.0.1:1',
    during: 'fleet-counts stalled; retrying',
    count: 1,
  });
  expect([lines.length, second.msg, second.err.message]).toEqual([2, 'BD error', 'other']);
});

it('survives errors that contain themselves, and what is no error', () => {
  const loop: Error & { self?: unknown } = new Error('loop');
  loop.self = loop;
  loop.cause = loop;
  expect(logged(loop).err).toMatchObject({ message: 'loop', cause: { message: 'loop' } });
  for (const value of ['text', 7, null, { message: 'no stack' }]) expect(logged(value).err).toEqual(value);
});

it('quotes nothing of a text that is no JSON', () => {
  const error = (() => {
    try {
      return JSON.parse('{"password": canary}');
    } catch (cause) {
      return cause;
    }
  })();
  expect(logged(error).line).not.toContain('canary');
});
