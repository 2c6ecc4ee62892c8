import { type Database, read_limit_ms } from '../db/database.js';
import { planQuery } from '../db/query-plan.js';
import { AppError } from '../errors.js';
import { stream } from '../resources/index.js';
import type { ListRequest } from '../schema/validation.js';

const chunk = 10_000;

/**
 * Removes the streams of a device that match, in the part of the list that `max` and `offset` cut out where they are
 * given (contract 8). The device's status stays. @throws AppError notFound (4041) without the device
 */
export async function removeStreams(
  db: Database,
  account: string,
  device: string,
  request: ListRequest,
): Promise<void> {
  const streams = db.collection('streams');
  const { filter: matching, sort, hint } = planQuery(stream, account, request, { device });
  const found = await db
    .collection('devices')
    .findOne({ account, id_developer: device }, { projection: { _id: 1 }, maxTimeMS: read_limit_ms });
  if (found === null) throw new AppError('notFound');
  if (request.params.max === undefined && request.offset === 0) {
    await streams.deleteMany(matching);
    return;
  }
  let left = request.params.max === undefined ? Number.POSITIVE_INFINITY : request.max;
  while (left > 0) {
    const options = {
      projection: { _id: 1 },
      sort,
      ...(hint && { hint }),
      skip: request.offset,
      limit: Math.min(left, chunk),
      maxTimeMS: read_limit_ms,
    };
    const page = await streams.find(matching, options).toArray();
    await streams.deleteMany({ _id: { $in: page.map(({ _id }) => _id) } });
    if (page.length < chunk) return;
    left -= page.length;
  }
}

/** Removes what was received before `moment` (epoch milliseconds), of all accounts; ids hold the time they were made. */
export async function removeStreamsBefore(db: Database, moment: number): Promise<void> {
  const streams = db.collection('streams');
  const old = { _id: { $lt: db.idAt(moment) } };
  for (;;) {
    const options = { projection: { _id: 1 }, sort: { _id: 1 }, limit: chunk, maxTimeMS: read_limit_ms } as const;
    const page = await streams.find(old, options).toArray();
    if (page.length > 0) await streams.deleteMany({ _id: { $in: page.map(({ _id }) => _id) } });
    if (page.length < chunk) return;
  }
}
