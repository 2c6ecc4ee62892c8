import type { Page } from '../objects/page.js';
import { listResources } from '../objects/select/lists.js';
import type { FieldType } from '../schema/fields.js';
import { createListParser, type ListParserOptions, type ListRequest, listQueryOf } from '../schema/list-parameters.js';
import type { ListedType } from '../schema/resource.js';
import type { Endpoint, RequestContext } from './context.js';
import { chooseListFormat } from './negotiate.js';

interface ListingOptions extends ListParserOptions {
  /** Parameters beside `params`. */
  extra?: Readonly<Record<string, FieldType>>;
}

/** The part of an operation that makes it list a type. @param load reads one page */
export function createListing(
  listed: ListedType,
  load: (ctx: RequestContext, request: ListRequest) => Promise<Page> = (ctx, request) =>
    listResources(ctx, listed, request),
  { extra = {}, params = listQueryOf(listed), ...options }: ListingOptions = {},
): Pick<Endpoint, 'method' | 'query' | 'result' | 'handle' | 'isCostly'> {
  const query = new Map([...params, ...Object.entries(extra)]);
  const parse = createListParser(listed, { ...options, params: query });
  return {
    method: 'get',
    query,
    result: { kind: 'list', type: listed },
    isCostly: true,
    async handle(ctx) {
      const request = parse(ctx.query, ctx.now, chooseListFormat(ctx.request.headers.accept));
      return { page: await load(ctx, request), output: request.output };
    },
  };
}
