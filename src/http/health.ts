import { type RequestHandler, Router } from 'express';
import type { Database } from '../db/database.js';
import { AppError } from '../errors.js';
import type { Metrics } from './metrics.js';

/** A path at the root that needs no key: GET, HEAD and OPTIONS, 405 for the rest. */
export function publicRoute(router: Router, path: string, handler: RequestHandler): void {
  router
    .route(path)
    .get(handler)
    .options((_request, response) => {
      response.setHeader('Allow', 'GET, HEAD, OPTIONS');
      response.status(204).end();
    })
    .all((_request, response) => {
      response.setHeader('Allow', 'GET, HEAD, OPTIONS');
      throw new AppError('methodNotAllowed');
    });
}

/** What stands at the root, outside {base_url}, without a key: liveness, readiness and metrics (contract 1). */
export function healthRoutes(db: Database, metrics: Metrics): Router {
  const router = Router();
  publicRoute(router, '/healthz', (_request, response) => {
    response.json({ status: 'ok' });
  });
  publicRoute(router, '/readyz', async (_request, response) => {
    const ready = await db.ready();
    response.status(ready ? 200 : 503).json({ status: ready ? 'ready' : 'not ready' });
  });
  publicRoute(router, '/metrics', async (_request, response) => {
    response.type(metrics.contentType).send(await metrics.text());
  });
  return router;
}
