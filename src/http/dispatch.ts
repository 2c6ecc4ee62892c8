import type { RequestHandler, Response } from 'express';
import { AppError } from '../errors.js';
import { isPlainObject } from '../schema/fields/object.js';
import { type ParsedJson, parseJson, tooManyValues } from '../schema/json.js';
import { body_limit_bytes, isPermitted } from '../schema/operation.js';
import { checkIdentifier, parseQuery, type Query, splitQuery } from '../schema/query.js';
import { type Admission, runInShare } from './admission.js';
import { readBody } from './body.js';
import { type Answer, type Endpoint, type EndpointDeps, localsOf, type Match, type RequestContext } from './context.js';
import { isXmlContent } from './negotiate.js';
import { createSender } from './respond.js';
import type { createRouter } from './router.js';

/** Finds the endpoint of a request, and answers OPTIONS (reference/requests.md#head-and-options). */
export function matchRoute(router: ReturnType<typeof createRouter>): RequestHandler {
  return (request, response, next) => {
    const match = router(request.method, request.path);
    const locals = localsOf(response);
    locals.match = match;
    if (match?.endpoint !== undefined) locals.route = match.endpoint.path;
    if (request.method !== 'OPTIONS' || (match === undefined && locals.isPreflight !== true)) {
      next();
      return;
    }
    if (match !== undefined) response.setHeader('Allow', match.allow);
    response.status(204).end();
  };
}

/** Ends requests to paths outside of the interface. @returns a handler that throws AppError notFound (4041) */
export const rejectUnknownPath: RequestHandler = (_request, response) => {
  if (localsOf(response).isPreflight !== true) throw new AppError('notFound');
  response.status(204).end();
};

/** @throws AppError notFound (4041), methodNotAllowed (4051), unauthorized (4011), forbidden (4031) */
function findPermitted(response: Response) {
  const { match, principal } = localsOf(response);
  if (match === undefined) throw new AppError('notFound');
  const { endpoint } = match;
  if (endpoint === undefined) {
    response.setHeader('Allow', match.allow);
    throw new AppError('methodNotAllowed');
  }
  if (principal === undefined) throw new AppError('unauthorized');
  if (!isPermitted(principal, endpoint)) throw new AppError('forbidden');
  return { match, endpoint, principal };
}

/**
 * Calls the endpoint that `matchRoute` found, after authentication, and sends its answer. Errors are reported in the order of
 * reference/requests.md#order-of-checks: 4041, 4051, 4031, 4131, 4001, 4004, then those of the endpoint.
 */
export function callEndpoint(
  endpoints: readonly Endpoint[],
  deps: EndpointDeps,
  admission: Admission,
  clock: () => number,
): RequestHandler {
  const { store, yieldTurn } = deps;
  const senders = new Map(endpoints.map((endpoint) => [endpoint, createSender(endpoint, deps)]));
  return async (request, response) => {
    const locals = localsOf(response);
    const { request_id, started_at_ms } = locals;
    const { match, endpoint, principal } = findPermitted(response);
    const { account, user, limit } = principal;
    const { body: bodySpec } = endpoint;
    const memory = admission.reserve(account);
    try {
      const limits = bodySpec && { limit_bytes: bodySpec.limit_bytes ?? body_limit_bytes, reserve: memory.add };
      const bytes = limits && (await locals.awaitBody(() => readBody(request, limits)));
      await admission.inSlot({ account, response }, endpoint.isCostly === true, async () => {
        const yieldPiece = () => yieldTurn({ account, caller: locals });
        if (bytes !== undefined && bytes.length > yield_threshold_bytes) await yieldPiece();
        const parseXml = isXmlContent(request.headers['content-type']) ? bodySpec?.parseXml : undefined;
        let xml = parseXml && bytes && (await parseXml(bytes, yieldPiece));
        const { path, query, body, takeJson } = parseRequest(endpoint, match, request.url, xml ?? bytes);
        xml = undefined;
        const moment = clock() / 1000;
        // no spread: V8 copies a second one property by property, 8 % of the time of a short request
        const ctx: RequestContext = {
          store,
          account,
          limit,
          user,
          now: Math.floor(moment),
          moment,
          request_id,
          caller: locals,
          request,
          response,
          principal,
          path,
          query,
          body,
          takeJson,
          started_at_ms,
        };
        const handled = endpoint.isCostly === true ? await handleInTurn(endpoint, ctx) : await endpoint.handle(ctx);
        const answer = handled ?? (endpoint.result.kind === 'status' ? {} : undefined);
        // after a timeout the sender of a page closes its cursor
        const isWanted = !response.headersSent || answer?.page !== undefined;
        if (answer !== undefined && isWanted) await senders.get(endpoint)?.(ctx, answer);
      });
    } finally {
      memory.release();
    }
  };
}

/** Calls a costly endpoint with a share of the database. @throws AppError overloaded (5033) */
function handleInTurn(endpoint: Endpoint, ctx: RequestContext): Promise<Answer | undefined> {
  return runInShare(ctx.store.costly, ctx, async () => (await endpoint.handle(ctx)) ?? undefined);
}

/**
 * Parses and checks the parts of a request, whose body may be parsed already. Not asynchronous: a suspended function would
 * keep the JSON in memory.
 */
function parseRequest(
  endpoint: Endpoint,
  match: Match,
  url: string,
  sent: Buffer | ParsedJson | undefined,
): Pick<RequestContext, 'path' | 'query' | 'body' | 'takeJson'> {
  const { body: bodySpec } = endpoint;
  const parsed = sent && bodySpec && readJson(sent, bodySpec);
  if (match.isUndecodable) throw new AppError('badParameter', { path: 'must be percent-encoded UTF-8' });
  const query = readQuery(url);
  if (endpoint.query === undefined || endpoint.legacy?.isMalformedIdNotFound)
    parseQuery(query, endpoint.query ?? noParameters);
  const path = checkPath(endpoint, match);
  const shape = bodySpec?.shape ?? 'object';
  if (parsed?.fault === 'tooManyValues')
    throw new AppError(shape === 'optional' ? 'badParameter' : 'invalid', { body: tooManyValues });
  let json = parsed?.value;
  const takeJson = () => {
    const taken = json;
    json = undefined;
    return taken;
  };
  return { path, query, body: shape === 'object' && isPlainObject(json) ? json : {}, takeJson };
}

function readQuery(url: string): Query {
  const at = url.indexOf('?');
  return at < 0 ? [] : splitQuery(url.slice(at + 1));
}

const noParameters = new Map();
/** A larger body is parsed in a turn of the event loop of its own. */
const yield_threshold_bytes = 64 * 1024;

/** @throws AppError badJson or noBody (4001), badParameter (4004) for a body with filters that is no object */
function readJson(
  sent: Buffer | ParsedJson,
  { shape = 'object', updating }: NonNullable<Endpoint['body']>,
): ParsedJson | undefined {
  if (shape === 'optional' && Buffer.isBuffer(sent) && sent.length === 0) return undefined;
  const parsed = Buffer.isBuffer(sent) ? parseJson(sent) : sent;
  const isObject = parsed.fault === undefined ? isPlainObject(parsed.value) : parsed.isObject;
  if (isObject || (shape !== 'object' && parsed.fault !== 'malformed')) return parsed;
  if (shape === 'optional') throw new AppError('badParameter', { body: 'must be a JSON object' });
  throw new AppError(updating ? 'noBody' : 'badJson');
}

/** @throws AppError badParameter (4004) for a malformed path, or notFound (4041) with `legacy.isMalformedIdNotFound` */
function checkPath({ legacy }: Endpoint, { params }: Match): Match['params'] {
  for (const [param, value] of Object.entries(params)) {
    if (!param.endsWith('_id_developer')) continue;
    if (legacy?.isMalformedIdNotFound === true && !value.includes('@')) throw new AppError('notFound');
    checkIdentifier(value, param);
  }
  return params;
}
