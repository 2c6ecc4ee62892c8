import type { RequestListener } from 'node:http';
import type { ErrorRequestHandler, Express, Request, RequestHandler, Response } from 'express';
import type { Endpoint } from './context.js';
import { serve } from './mount.js';

interface Options {
  /** What the paths of all operations begin with. */
  base: string;
  operations: readonly Endpoint[];
  /** Epoch milliseconds. */
  clock: () => number;
  /** What a request passes on its way to an operation, in the order in which Express takes it there. */
  steps: readonly RequestHandler[];
  failure: ErrorRequestHandler;
}

/** An operation and the parts of its path; one of them may be a parameter. */
interface Route {
  parts: readonly string[];
  /** Where the parameter stands, -1 without. */
  at: number;
  param: string;
  handler: RequestHandler;
}

/**
 * Takes requests for the operations that are asked for most through the same middleware to the same handlers, but not
 * through Express's routers, which take as long as all the rest. Whatever else it is, a method or path that is not
 * served included, is left to `express`.
 */
export function ahead(express: Express, { base, operations, clock, steps, failure }: Options): RequestListener {
  const routes = new Map<string, Route[]>();
  for (const operation of operations.filter(({ often }) => often)) {
    const parts = partsOf(operation.path);
    const at = parts.findIndex((part) => part.startsWith('{'));
    const key = `${operation.method.toUpperCase()} ${parts[0]}`;
    const route = { parts, at, param: parts[at]?.slice(1, -1) ?? '', handler: serve(operation, clock) };
    routes.set(key, [...(routes.get(key) ?? []), route]);
  }

  function find(method: string, path: string): { handler: RequestHandler; params: Request['params'] } | undefined {
    const parts = partsOf(path);
    const route = routes.get(`${method} ${parts[0]}`)?.find((one) => matches(one, parts));
    if (route === undefined) return undefined;
    if (route.at < 0) return { handler: route.handler, params: {} };
    const value = decoded(parts[route.at] ?? '');
    return value ? { handler: route.handler, params: { [route.param]: value } } : undefined;
  }

  return (received, answer) => {
    const { method = '', url = '' } = received;
    const query = url.indexOf('?');
    const found = url.startsWith(`${base}/`)
      ? find(method, url.slice(base.length, query < 0 ? undefined : query))
      : undefined;
    if (found === undefined) {
      express(received, answer);
      return;
    }
    // `server.ts` makes them with Express's prototypes
    const [request, response] = [received as Request, answer as Response];
    request.originalUrl = url;
    const { handler: last, params } = found;
    request.params = params;
    response.locals = Object.create(null);
    // what is late may fail again when it is done; whatever else cannot even be told is cut off
    let failed = 0;
    function fail(error: unknown): void {
      try {
        if (++failed > 2) response.destroy();
        else failure(error, request, response, next);
      } catch (thrown) {
        fail(thrown);
      }
    }
    let step = 0;
    function next(error?: unknown): void {
      if (error !== undefined) {
        fail(error);
        return;
      }
      const handler = steps[step++] ?? last;
      try {
        const handled: unknown = handler(request, response, next);
        if (handled instanceof Promise) handled.catch(fail);
      } catch (thrown) {
        fail(thrown);
      }
    }
    next();
  };
}

/** What stands between the slashes; one at the end may be missing. */
function partsOf(path: string): string[] {
  return path.slice(1, path.endsWith('/') ? -1 : undefined).split('/');
}

function matches({ parts, at }: Route, given: readonly string[]): boolean {
  return parts.length === given.length && parts.every((part, index) => index === at || part === given[index]);
}

/** @returns undefined for what is not percent-encoded UTF-8 */
function decoded(part: string): string | undefined {
  if (!part.includes('%')) return part;
  try {
    return decodeURIComponent(part);
  } catch {
    return undefined;
  }
}
