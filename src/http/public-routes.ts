import type { RequestHandler } from 'express';
import { AppError } from '../errors.js';

/** An exact path at the root and its handler for GET and HEAD. */
export type PublicRoute = readonly [path: string, handler: RequestHandler];

/** Passes GET and HEAD on, answers OPTIONS, and rejects other methods with 4051. */
export const allowGetOnly: RequestHandler = ({ method }, response, next) => {
  if (method === 'GET' || method === 'HEAD') return next();
  response.setHeader('Allow', 'GET, HEAD, OPTIONS');
  if (method !== 'OPTIONS') throw new AppError('methodNotAllowed');
  response.status(204).end();
};

/** Serves paths that need no key: GET, HEAD and OPTIONS, 405 for other methods. A closing slash is optional. */
export function servePublicRoutes(routes: readonly PublicRoute[]): RequestHandler {
  const handlers = new Map(routes);
  return (request, response, next) => {
    const { path } = request;
    const handler = handlers.get(path.length > 1 && path.endsWith('/') ? path.slice(0, -1) : path);
    if (handler === undefined) next();
    else allowGetOnly(request, response, () => handler(request, response, next));
  };
}
