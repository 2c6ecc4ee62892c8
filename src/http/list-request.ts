import type { ParseListQuery } from '../schema/list-query.js';
import { isRowFormat } from '../schema/list-query.js';
import type { ListRequest } from '../schema/validation.js';
import { createCloseSignal } from './close-signal.js';
import type { RequestContext } from './context.js';
import { chooseListFormat } from './negotiate.js';

/** Parses the query of a list, whose format `Accept` may choose. @throws AppError badParameter (4004) */
export function parseListRequest(
  parse: ParseListQuery,
  { query, now, request, response }: RequestContext,
): ListRequest {
  const parsed = parse(query, now, chooseListFormat(request.headers.accept));
  const isExported = parsed.output !== undefined && isRowFormat(parsed.output.format);
  // an export may search for long after its client has left
  return isExported ? { ...parsed, signal: createCloseSignal(response) } : parsed;
}
