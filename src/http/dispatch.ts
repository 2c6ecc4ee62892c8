import type { RequestHandler } from 'express';
import { AppError } from '../errors.js';
import type { Store } from '../repositories/context.js';
import { isPlainObject } from '../schema/fields.js';
import { parseJson } from '../schema/json.js';
import { permits } from '../schema/operation.js';
import { checkIdentifier, parseQuery, splitQuery } from '../schema/validation.js';
import { readBody } from './body.js';
import { type Endpoint, localsOf, type Match } from './context.js';
import type { createRouter } from './router.js';

/** Finds the endpoint of a request and answers OPTIONS, which needs no key (contract 4). */
export function matchRoute(router: ReturnType<typeof createRouter>): RequestHandler {
  return (request, response, next) => {
    const match = router(request.method, request.path);
    const locals = localsOf(response);
    locals.match = match;
    if (match?.endpoint !== undefined) locals.route = match.endpoint.path;
    if (match === undefined || request.method !== 'OPTIONS') {
      next();
      return;
    }
    response.setHeader('Allow', match.allow);
    response.status(204).end();
  };
}

/**
 * Calls the endpoint that `matchRoute` found, after authentication. What is wrong is reported in the order of contract 4:
 * 4041, 4051, 4031, 4131, 4001, 4004, then whatever the endpoint throws.
 */
export function callEndpoint(store: Store, clock: () => number): RequestHandler {
  return async (request, response) => {
    const locals = localsOf(response);
    const { match, principal, request_id, started_at_ms } = locals;
    if (match === undefined) throw new AppError('notFound');
    const { endpoint } = match;
    if (endpoint === undefined) {
      response.setHeader('Allow', match.allow);
      throw new AppError('methodNotAllowed');
    }
    if (principal === undefined) throw new AppError('unauthorized');
    if (!permits(principal.scope, endpoint.scope)) throw new AppError('forbidden');
    const { body: bodySpec } = endpoint;
    const bytes = bodySpec && (await locals.awaitBody(readBody(request, bodySpec.limit_bytes)));
    const json = bytes && readJson(bytes, bodySpec);
    const queryAt = request.url.indexOf('?');
    if (match.isUndecodable) throw new AppError('badParameter', { path: 'must be percent-encoded UTF-8' });
    const query = queryAt < 0 ? [] : splitQuery(request.url.slice(queryAt + 1));
    if (endpoint.query === undefined) parseQuery(query, noParameters);
    const path = checkPath(endpoint, match);
    await endpoint.handle({
      store,
      account: principal.account,
      user: principal.user,
      now: Math.floor(clock() / 1000),
      request_id,
      request,
      response,
      principal,
      path,
      query,
      body: isPlainObject(json) ? json : {},
      json,
      started_at_ms,
    });
  };
}

const noParameters = new Map();

/** @throws AppError badJson or noBody (4001), badParameter (4004) for filters in a body */
function readJson(bytes: Buffer, { shape = 'object', updating }: NonNullable<Endpoint['body']>): unknown {
  if (shape === 'optional' && bytes.length === 0) return undefined;
  const json = parseJson(bytes);
  if (shape === 'object' ? isPlainObject(json) : json !== undefined) return json;
  if (shape === 'optional') throw new AppError('badParameter', { body: 'must be a JSON object' });
  throw new AppError(updating ? 'noBody' : 'badJson');
}

/** @throws AppError badParameter (4004) for a malformed path, notFound (4041) where the endpoint says so */
function checkPath({ malformedIdIs404 }: Endpoint, { params }: Match): Match['params'] {
  for (const [param, value] of Object.entries(params)) {
    if (!param.endsWith('_id_developer')) continue;
    if (malformedIdIs404 === true && !value.includes('@')) throw new AppError('notFound');
    checkIdentifier(value, param);
  }
  return params;
}
