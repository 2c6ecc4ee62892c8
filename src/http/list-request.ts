import type { Page } from '../objects/page.js';
import type { FieldType } from '../schema/fields.js';
import { createListParser, type ListRequest, listQueryOf, type ParseListQuery } from '../schema/list-parameters.js';
import type { ListedType } from '../schema/resource.js';
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
  const { query, now, request } = ctx;
  const parsed = parse(query, now, chooseListFormat(request.headers.accept));
  return { page: await load(ctx, parsed), output: parsed.output };
}
