import { useQuery } from '@tanstack/react-query';
import { lazy, Suspense } from 'react';
import { pathOf, request } from '../api/client.js';
import { useModel } from '../api/hooks.js';
import type { Entry } from '../api/resources.js';
import type { Series } from '../charts/series.js';
import { thresholdsOf } from '../charts/thresholds.js';
import type { Condition } from '../lib/conditions.js';
import { browserZone, formatNumber } from '../lib/format.js';
import { ObjectLink } from '../ui/address.js';
import { Loaded, Loading } from '../ui/page.js';
import { countRaises, type Extremes } from './raises.js';

const Plots = lazy(() => import('../charts/plots.js').then(({ Plots: component }) => ({ default: component })));

const every_s = 60;
const day_s = 86_400;

interface RuleHistoryProps {
  rule: Entry;
  device: { id_developer: string; name: string; id_model?: string };
}

/** Draws the limit of a rule into the last day of a device, and says how often the rule would have been raised. */
export function RuleHistory({ rule, device: { id_developer: id, name, id_model } }: RuleHistoryProps) {
  const conditions = rule.conditions as Condition[];
  const [threshold] = thresholdsOf(rule);
  const path = threshold?.path ?? '';
  const measures = useModel(id_model).data?.measures ?? [];
  const answer = useQuery({
    queryKey: ['rule-history', id, path],
    queryFn({ signal }) {
      const at_to = Math.floor(Date.now() / 1000);
      // whole buckets, of which a series has 5,000 at most
      const query = { fields: path, every: every_s, at_from: Math.ceil((at_to - day_s) / every_s) * every_s, at_to };
      return request<Series>('GET', pathOf('devices', id, 'series'), { query, signal });
    },
    enabled: threshold !== undefined && conditions.length === 1,
  });
  if (threshold === undefined || conditions.length > 1) return null;
  const clear = conditions[0]?.clear;
  const limit = {
    ...threshold,
    clear: typeof clear === 'number' ? clear : threshold.value,
    for_s: typeof rule.for === 'number' ? rule.for : 0,
  };
  const describeRaises = ({ result }: Series) => {
    const extremes = result.map(({ at, [path]: values }): Extremes => ({ at, ...(values as object) }));
    const count = countRaises(extremes, limit, every_s);
    return count === 1 ? 'once' : `${formatNumber(count)} times`;
  };
  return (
    <Loaded of={answer} height="14rem">
      {(series) => (
        <>
          <p>
            At <ObjectLink plural="devices" id={id} label={name} /> it would have been raised{' '}
            <strong>{describeRaises(series)}</strong> since yesterday.
          </p>
          <Suspense fallback={<Loading height="12rem" />}>
            <Plots
              series={series}
              paths={[path]}
              measures={measures}
              streams={[]}
              marks={[]}
              thresholds={[threshold]}
              label={`${path} of ${name} since yesterday`}
              timeZone={browserZone}
            />
          </Suspense>
        </>
      )}
    </Loaded>
  );
}
