import type { DataPath } from '../schema/data-path.js';
import type { Values } from '../schema/fields.js';
import type { MemberRequest } from '../schema/requested.js';
import type { OperationContext } from './context.js';

/** A stored document as BSON bytes, as the serializer takes it. */
export type Bson = Uint8Array;

/** A page of a list: `batches` yields stored documents as they come from the database, the first batch at once. */
export interface Page {
  /** 0 for exports, which do not show it. */
  total_documents: number;
  batches: AsyncIterable<readonly Bson[]>;
  /** Returns the value of `after` that continues the list, once the batches have been read; undefined at its end. */
  next?: (() => string | undefined) | undefined;
  /** Only for pages of streams, if the request asks for it. */
  summary?: PageSummary | undefined;
}

/** The request and the extent of a page of streams (reference/streams.md#metadata). */
export interface PageSummary {
  parameters: Values;
  returned: number;
  at_first: number | null;
  at_last: number | null;
}

/** Loads a member that objects show on request (`ListedType.requested`). */
export interface RequestedMember {
  /** @returns BSON of the member by object @param isFlat paths are members of it by their text, as columns name them */
  load(
    ctx: OperationContext,
    documents: readonly Bson[],
    request: MemberRequest & { isFlat: boolean },
  ): Promise<ReadonlyMap<Bson, Bson>>;
  /** Names paths in columns for people. @returns headings by the text of the path */
  nameColumns?(ctx: OperationContext, paths: readonly DataPath[]): Promise<ReadonlyMap<string, string>>;
}
