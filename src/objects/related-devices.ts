import { read_limit_ms } from '../db/database.js';
import { findAll, type RawQuery } from '../db/raw-find.js';
import { AppError } from '../errors.js';
import type { Values } from '../schema/fields.js';
import type { ListRequest } from '../schema/list-parameters.js';
import type { OperationContext } from './context.js';

type Scope = Pick<OperationContext, 'store' | 'account'>;

/** Documents of another collection, with `device` and `parent`, by which a parameter selects devices. */
interface Related {
  plural: string;
  param: string;
  buildConditions(params: Values): object;
  /** Stage that yields the device of each as `_id`. */
  toDevice: object;
  /** Indexes for the conditions, and for the documents of a device. */
  hints: { byCondition: Readonly<Record<string, 1>>; byDevice: Readonly<Record<string, 1>> };
}

/** Filters of devices by documents of another collection. */
interface RelatedFilter {
  /** Selects devices of an account. @throws AppError badParameter (4004) if they are too many */
  build(scope: Scope, request: ListRequest): Promise<object[]>;
  /** Selects some of these devices, now or at an earlier moment. @param ids identifiers */
  buildOf(
    scope: Scope,
    request: ListRequest,
    ids: readonly string[],
    readConcern?: RawQuery['readConcern'],
  ): Promise<object[]>;
}

/** Their ids are a condition of one query, which has to be read within its time. */
const max_selected = 200_000;

/** Creates the filters by one kind of documents; without the parameter there are none. */
export function createRelatedFilter({ plural, param, buildConditions, toDevice, hints }: Related): RelatedFilter {
  return {
    async build({ store, account }, { params }) {
      if (typeof params[param] !== 'string') return [];
      const pipeline = [{ $match: { account, ...buildConditions(params) } }, toDevice, { $limit: max_selected + 1 }];
      const options = { hint: hints.byCondition, maxTimeMS: read_limit_ms };
      const devices = await store.db.collection(plural).aggregate(pipeline, options).toArray();
      if (devices.length > max_selected)
        throw new AppError('badParameter', { [param]: `matches more than ${max_selected} devices` });
      return [selectIds(devices.map(({ _id }) => _id))];
    },
    async buildOf({ store, account }, { params }, ids, readConcern) {
      if (typeof params[param] !== 'string') return [];
      const documents = await findAll(store.db.collection(plural), {
        filter: { account, device: { $in: ids }, ...buildConditions(params) },
        projection: { parent: 1 },
        hint: hints.byDevice,
        maxTimeMS: read_limit_ms,
        ...(readConcern && { readConcern }),
      });
      return [selectIds(documents.map(({ parent }) => parent))];
    },
  };
}

/** A condition on ids, not at the top, where the id that a key is limited to is compared. */
function selectIds(ids: readonly unknown[]): object {
  return { $and: [{ _id: { $in: ids } }] };
}
