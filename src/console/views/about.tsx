import { useQuery } from '@tanstack/react-query';
import { RequestError } from '../api/errors.js';
import { pageSettings } from '../api/page-settings.js';
import { useSession } from '../api/queries.js';
import { Loaded } from '../components/feedback.js';
import { Page, Panel } from '../components/page.js';
import { formatBytes, formatDuration, formatNumber } from '../format.js';

const refresh_ms = 5000;

/** The version of the service, its readiness, and its metrics. */
export function About() {
  const { document, scope } = useSession();
  return (
    <Page title="About">
      <div className="stack">
        <Panel title="Service">
          <dl className="fields">
            <Fact label="Version" value={document.info.version} />
            <Fact label="Base address" value={location.origin + pageSettings.base} />
            <Fact label="Scope of the key" value={scope} />
            <Readiness />
          </dl>
          <p>
            <a href={`${pageSettings.prefix}/docs/`}>Description of the interface</a>
          </p>
        </Panel>
        <Metrics />
      </div>
    </Page>
  );
}

function Fact({ label, value }: { label: string; value: string }) {
  return (
    <div>
      <dt>{label}</dt>
      <dd>{value}</dd>
    </div>
  );
}

/** `/readyz` answers 503 while the service is not ready, which is an answer too. */
function Readiness() {
  const { data } = useQuery({
    queryKey: ['readyz'],
    queryFn: async ({ signal }) => {
      const response = await fetch(`${pageSettings.prefix}/readyz`, { signal, cache: 'no-store' });
      return response.ok ? 'ready' : 'not ready';
    },
    refetchInterval: refresh_ms,
  });
  return <Fact label="State" value={data ?? '…'} />;
}

interface Metric {
  name: string;
  value: number;
}

/** Reads the Prometheus text format, and adds up what differs in labels only. */
export function parseMetrics(text: string): Map<string, number> {
  const sums = new Map<string, number>();
  for (const line of text.split('\n')) {
    const [, name, value] = /^([a-zA-Z_:][\w:]*)(?:\{.*\})? (\S+)/.exec(line) ?? [];
    if (name !== undefined) sums.set(name, (sums.get(name) ?? 0) + Number(value));
  }
  return sums;
}

const hidden = /_bucket$|_created$|^nodejs_(?:gc|version|heap_space)|_p\d\d|quantile/;

function Metrics() {
  const answer = useQuery({
    queryKey: ['metrics'],
    queryFn: async ({ signal }) => {
      const response = await fetch(`${pageSettings.prefix}/metrics`, { signal, cache: 'no-store' });
      if (!response.ok) throw new RequestError(response.status, 0, 'no metrics');
      return parseMetrics(await response.text());
    },
    refetchInterval: refresh_ms,
  });
  return (
    <Panel title="Metrics">
      <Loaded of={answer} height="20rem">
        {(metrics) => (
          <dl className="fields">
            {[...metrics]
              .map(([name, value]): Metric => ({ name, value }))
              .filter(({ name }) => !hidden.test(name))
              .map(({ name, value }) => (
                <Fact key={name} label={name} value={formatMetric(name, value)} />
              ))}
          </dl>
        )}
      </Loaded>
    </Panel>
  );
}

function formatMetric(name: string, value: number): string {
  if (name.endsWith('_bytes')) return formatBytes(value);
  if (name.endsWith('start_time_seconds')) return `${formatDuration(Date.now() / 1000 - value)} ago`;
  return formatNumber(value);
}
