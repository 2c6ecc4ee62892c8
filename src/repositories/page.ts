import type { Collection } from '../db/database.js';
import type { ListRequest } from '../schema/validation.js';
import type { OperationContext } from './context.js';

/** A stored document as BSON bytes, as the serializer takes it. */
export type Bson = Uint8Array;

/** A page of a list: `batches` yields stored documents as they come from the database, the first batch at once. */
export interface Page {
  total_documents: number;
  batches: AsyncIterable<readonly Bson[]>;
}

/** Behaviour of the lists of one type beyond what its declaration says. */
export interface ListHooks {
  /** Runs before the list is read. */
  prepare?(ctx: OperationContext, request: ListRequest): Promise<void>;
  /** Lists sorted by a value that is not stored, by `sort` value. */
  sortBy?: ReadonlyMap<string, (collection: Collection, filter: object, request: ListRequest) => Promise<Page>>;
}
