import type { PublicRoute } from './public-routes.js';

/** Metrics in the text format of Prometheus. */
interface MetricsText {
  contentType: string;
  text(): Promise<string>;
}

/** Serves liveness, readiness and metrics (reference/configuration.md#health). */
export function healthRoutes(isReady: () => Promise<boolean>, metrics: MetricsText): PublicRoute[] {
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
