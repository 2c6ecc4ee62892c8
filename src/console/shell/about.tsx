import { useQuery } from '@tanstack/react-query';
import { RequestError } from '../api/errors.js';
import { pageSettings } from '../api/page-settings.js';
import { useSession } from '../api/session.js';
import { formatBytes, formatDuration, formatNumber, formatTime } from '../lib/format.js';
import { Loaded } from '../ui/feedback.js';
import { Facts, Page, Panel } from '../ui/page.js';

const refresh_ms = 5000;

/** The version of the service, its readiness, the key, and the metrics. */
export function About() {
  const {
    version,
    self: { account, username, scope, expires_at },
  } = useSession();
  // 503 while the service is not ready is an answer too
  const readiness = useRootPath('/readyz', async ({ ok }) => (ok ? 'ready' : 'not ready'));
  const metrics = useRootPath('/metrics', async (response) => {
    if (!response.ok) throw new RequestError(response.status, 0, 'no metrics');
    return parseMetrics(await response.text());
  });
  return (
    <Page title="About">
      <div className="stack">
        <Panel title="Service">
          <Facts
            entries={[
              ['Version', version],
              ['Base address', location.origin + pageSettings.base],
              ['State', readiness.data ?? '…'],
              ['Account', account],
              ['User', username],
              ['Scope of the key', scope],
              ['Key expires', expires_at === undefined ? 'never' : formatTime(expires_at)],
            ]}
          />
          <p>
            <a href={`${pageSettings.prefix}/docs/`}>Description of the interface</a>
          </p>
        </Panel>
        <Panel title="Metrics">
          <Loaded of={metrics} height="20rem">
            {(values) => <Facts entries={[...values].map(([name, value]) => [name, formatMetric(name, value)])} />}
          </Loaded>
        </Panel>
      </div>
    </Page>
  );
}

/** Reads a path at the root of the server again and again. */
function useRootPath<T>(path: string, read: (response: Response) => Promise<T>) {
  return useQuery({
    queryKey: [path],
    queryFn: async ({ signal }) => read(await fetch(pageSettings.prefix + path, { signal, cache: 'no-store' })),
    refetchInterval: refresh_ms,
  });
}

const hidden = /_bucket$|_created$|^nodejs_(?:gc|version|heap_space)|_p\d\d|quantile/;

/** Reads the Prometheus text format, and adds up what differs in labels only. */
function parseMetrics(text: string): Map<string, number> {
  const sums = new Map<string, number>();
  for (const line of text.split('\n')) {
    const [, name, value] = /^([a-zA-Z_:][\w:]*)(?:\{.*\})? (\S+)/.exec(line) ?? [];
    if (name !== undefined && !hidden.test(name)) sums.set(name, (sums.get(name) ?? 0) + Number(value));
  }
  return sums;
}

function formatMetric(name: string, value: number): string {
  if (name.endsWith('_bytes')) return formatBytes(value);
  if (name.endsWith('start_time_seconds')) return `${formatDuration(Date.now() / 1000 - value)} ago`;
  return formatNumber(value);
}
