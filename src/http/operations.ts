import { type RequestHandler, Router } from 'express';
import { AppError } from '../errors.js';
import type { Database } from '../store/connect.js';
import type { Metrics } from './metrics.js';

/** What stands at the root, outside {base_url}, without a key: liveness, readiness and metrics (contract 1). */
export function operationsRoutes(db: Database, metrics: Metrics): Router {
  const router = Router();
  const answer = (path: string, handler: RequestHandler) => {
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
  };
  answer('/healthz', (_request, response) => {
    response.json({ status: 'ok' });
  });
  answer('/readyz', async (_request, response) => {
    const ready = await db.ready();
    response.status(ready ? 200 : 503).json({ status: ready ? 'ready' : 'not ready' });
  });
  answer('/metrics', async (_request, response) => {
    response.type(metrics.contentType).send(await metrics.text());
  });
  return router;
}
