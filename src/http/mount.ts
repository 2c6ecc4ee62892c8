import { type RequestHandler, Router } from 'express';
import { AppError } from '../errors.js';
import { isPlainObject } from '../schema/fields.js';
import { parseJson } from '../schema/json.js';
import { permits } from '../schema/operation.js';
import { checkIdentifier, parseQuery, splitQuery } from '../schema/validation.js';
import { readBody } from './body.js';
import { type Endpoint, localsOf } from './context.js';

/** `/groups/{id}/` as Express writes it. */
function patternOf(path: string): string {
  return path.replaceAll(/\{(\w+)\}/g, ':$1').replace(/\/$/, '');
}

function byPath(operations: readonly Endpoint[]): Map<string, Endpoint[]> {
  const paths = new Map<string, Endpoint[]>();
  for (const operation of operations) paths.set(operation.path, [...(paths.get(operation.path) ?? []), operation]);
  return paths;
}

function methodsOf(operations: readonly Endpoint[]): string {
  const methods = operations.map(({ method }) => method.toUpperCase());
  return [...methods, ...(methods.includes('GET') ? ['HEAD'] : []), 'OPTIONS'].join(', ');
}

/** `OPTIONS` of every path, which needs no key (contract 4). */
export function optionsOf(operations: readonly Endpoint[]): RequestHandler {
  const router = Router({ caseSensitive: true });
  for (const [path, served] of byPath(operations)) {
    router.options(patternOf(path), (_request, response) => {
      response.setHeader('Allow', methodsOf(served));
      response.status(204).end();
    });
  }
  // a router asks every path before it looks at the method
  return (request, response, next) => (request.method === 'OPTIONS' ? router(request, response, next) : next());
}

/**
 * A path that is not percent-encoded UTF-8 is told in its turn, after 401, 405 and 403: routers, which decode what they
 * match, see it as if its percent signs were meant.
 */
export const decodablePath: RequestHandler = (request, response, next) => {
  const end = request.url.indexOf('?');
  const path = end < 0 ? request.url : request.url.slice(0, end);
  try {
    decodeURIComponent(path);
  } catch {
    localsOf(response).undecodable = true;
    request.url = path.replaceAll('%', '%25') + request.url.slice(path.length);
  }
  next();
};

/** Notes where a 401 has another body than the numbered one. */
export function unauthorizedBodies(operations: readonly Endpoint[]): Router {
  const router = Router({ caseSensitive: true });
  for (const { method, path, legacy401 } of operations) {
    if (legacy401 === undefined) continue;
    router[method](patternOf(path), (_request, response, next) => {
      localsOf(response).legacy401 = legacy401;
      next();
    });
  }
  return router;
}

/** The first part of a path, which says what it is about. */
function headOf(path: string): string {
  return path.split('/', 2)[1] ?? '';
}

/** Hands a request to the router of what its path is about, if there is one: routers try their paths one by one. */
export function byHead(routers: ReadonlyMap<string, RequestHandler>): RequestHandler {
  return (request, response, next) => {
    const router = routers.get(headOf(request.path).toLowerCase());
    if (router === undefined) next();
    else router(request, response, next);
  };
}

/**
 * A router for each kind of thing, and the way to it. What is wrong is found in the order of contract 4: 405, 403, 413,
 * 4001, 4004, 4003.
 */
export function mount(operations: readonly Endpoint[], clock: () => number): RequestHandler {
  const routers = new Map<string, Router>();
  for (const [path, served] of byPath(operations)) {
    const head = headOf(path);
    const router = routers.get(head) ?? Router({ caseSensitive: true });
    routers.set(head, router);
    const route = router.route(patternOf(path));
    for (const operation of served) route[operation.method](serve(operation, clock));
    route.all((_request, response) => {
      response.setHeader('Allow', methodsOf(served));
      throw new AppError('methodNotAllowed');
    });
  }
  return byHead(routers);
}

const noParameters = new Map();

/** Reads and checks a request for an operation, and hands it over. @throws AppError what is wrong with it, see `mount` */
export function serve(operation: Endpoint, clock: () => number): RequestHandler {
  return async (request, response) => {
    const begun = performance.now();
    const locals = localsOf(response);
    locals.route = operation.path;
    const { principal } = locals;
    if (principal === undefined) throw new AppError('unauthorized');
    if (!permits(principal.scope, operation.scope)) throw new AppError('forbidden');
    const { body: takes } = operation;
    const received = takes && (await locals.awaitBody(readBody(request, takes.limit_bytes)));
    const json = received && readJson(received, takes);
    const body = isPlainObject(json) ? json : {};
    if (locals.undecodable) throw new AppError('badParameter', { path: 'must be percent-encoded UTF-8' });
    const at = request.url.indexOf('?');
    const query = at < 0 ? [] : splitQuery(request.url.slice(at + 1));
    if (operation.query === undefined) parseQuery(query, noParameters);
    const path = checkPath(operation, request.params);
    await operation.handle({
      request,
      response,
      principal,
      path,
      query,
      body,
      json,
      now: Math.floor(clock() / 1000),
      startedAt: begun,
    });
  };
}

/** @throws AppError badJson or noBody (4001), badParameter (4004) for filters in a body */
function readJson(received: Buffer, { shape = 'object', updating }: NonNullable<Endpoint['body']>): unknown {
  if (shape === 'optional' && received.length === 0) return undefined;
  const json = parseJson(received);
  if (shape === 'object' ? isPlainObject(json) : json !== undefined) return json;
  if (shape === 'optional') throw new AppError('badParameter', { body: 'must be a JSON object' });
  throw new AppError(updating ? 'noBody' : 'badJson');
}

function checkPath(operation: Endpoint, params: Readonly<Record<string, string | string[]>>): Record<string, string> {
  const path: Record<string, string> = {};
  for (const [param, value] of Object.entries(params)) {
    if (typeof value !== 'string') continue;
    const identifies = param.endsWith('_id_developer');
    if (identifies && operation.malformedIdIs404 === true && !value.includes('@')) throw new AppError('notFound');
    path[param] = identifies ? checkIdentifier(value, param) : value;
  }
  return path;
}
