import type { Metrics } from '../metrics/metrics.js';
import type { PublicRoute } from './public-routes.js';

/** Serves liveness, readiness and metrics (reference/configuration.md#health). */
export function healthRoutes(isReady: () => Promise<boolean>, metrics: Metrics): PublicRoute[] {
  return [
    ['/healthz', (_request, response) => void response.json({ status: 'ok' })],
    [
      '/readyz',
      async (_request, response) => {
        const ready = await isReady();
        response.status(ready ? 200 : 503).json({ status: ready ? 'ready' : 'not ready' });
      },
    ],
    ['/metrics', async (_request, response) => void response.type(metrics.contentType).send(await metrics.text())],
  ];
}
