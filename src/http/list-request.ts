import type { Page } from '../objects/page.js';
import type { FieldType } from '../schema/fields.js';
import {
  createListParser,
  isRowFormat,
  type ListRequest,
  listQueryOf,
  type ParseListQuery,
} from '../schema/list-parameters.js';
import type { ListedType } from '../schema/resource.js';
import { createCloseSignal } from './close-signal.js';
import type { Answer, Endpoint, RequestContext } from './context.js';
import { chooseListFormat } from './negotiate.js';

/** Reads one page of a list. */
type LoadPage = (ctx: RequestContext, request: ListRequest) => Promise<Page>;

/** The part of an operation that makes it list a type. @param extra further parameters */
export function createListing(
  listed: ListedType,
  load: LoadPage,
  extra: Readonly<Record<string, FieldType>> = {},
): Pick<Endpoint, 'query' | 'result' | 'handle' | 'isCostly'> {
  const query = new Map([...listQueryOf(listed), ...Object.entries(extra)]);
  const parse = createListParser(listed, { params: query });
  return {
    query,
    result: { kind: 'list', type: listed },
    isCostly: true,
    handle: (ctx) => readList(ctx, parse, load),
  };
}

/** Parses the query of a list, whose format `Accept` may choose, and reads a page. @throws AppError badParameter (4004) */
export async function readList(ctx: RequestContext, parse: ParseListQuery, load: LoadPage): Promise<Answer> {
  const { query, now, request, response } = ctx;
  const parsed = parse(query, now, chooseListFormat(request.headers.accept));
  const { output } = parsed;
  const isExported = output !== undefined && isRowFormat(output.format);
  // an export may search for long after its client has left
  const page = await load(ctx, isExported ? { ...parsed, signal: createCloseSignal(response) } : parsed);
  return { page, output };
}
