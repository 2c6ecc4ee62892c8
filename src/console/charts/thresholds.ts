import { useQuery } from '@tanstack/react-query';
import { request } from '../api/client.js';
import { useSession } from '../api/hooks.js';
import type { Alarm, Device } from '../api/interface.js';
import { type Entry, type ListAnswer, queryOfScope, severities } from '../api/resources.js';
import type { Condition } from '../lib/conditions.js';

/** A value beyond which an alarm rule that covers the device has a condition met. */
export interface Threshold {
  path: string;
  op: string;
  value: number;
  severity: Alarm['severity'];
}

/** An account has at most as many. */
const max_rules = 200;
/** Parts of the fleet for which the service is asked whether they have the device. */
const max_scopes = 20;
const fresh_ms = 60_000;
const nothing: readonly Threshold[] = [];

/** Finds the thresholds of a device, the worst first. */
export function useThresholds(device: Device): readonly Threshold[] {
  const { id_developer, id_model, id_group, id_asset } = device;
  const { data = nothing } = useQuery({
    queryKey: ['thresholds', id_developer, id_model, id_group, id_asset],
    queryFn: ({ signal }) => findThresholds(device, signal),
    enabled: useSession().can('GET', '/alarmrules/'),
    staleTime: fresh_ms,
  });
  return data;
}

async function findThresholds(device: Device, signal: AbortSignal): Promise<Threshold[]> {
  const query = { enabled: 'true', max: max_rules };
  const { result } = await request<ListAnswer<Entry>>('GET', '/alarmrules/', { query, signal });
  const rules = result.map((rule) => ({ scope: JSON.stringify(queryOfScope(rule)), thresholds: thresholdsOf(rule) }));
  const scopes = new Set(rules.filter(({ thresholds }) => thresholds.length > 0).map(({ scope }) => scope));
  const covering = new Set<string>();
  for (const scope of [...scopes].slice(0, max_scopes)) if (await covers(scope, device, signal)) covering.add(scope);
  return rules
    .filter(({ scope }) => covering.has(scope))
    .flatMap(({ thresholds }) => thresholds)
    .sort((left, right) => severities.indexOf(left.severity) - severities.indexOf(right.severity));
}

/** The limits in the conditions of a rule. */
export function thresholdsOf({ severity, conditions }: Entry): Threshold[] {
  return (conditions as Condition[]).flatMap(({ path, op, value }) =>
    typeof value === 'number' && /^[<>]/.test(String(op))
      ? [{ path: String(path), op: String(op), value, severity: severity as Alarm['severity'] }]
      : [],
  );
}

async function covers(scope: string, { id_developer }: Device, signal: AbortSignal): Promise<boolean> {
  const filters = JSON.parse(scope) as Record<string, string>;
  if ('id_developer' in filters) return filters.id_developer === id_developer;
  if (Object.keys(filters).length === 0) return true;
  const query = { ...filters, id_developer, max: 1, fields: 'id_developer' };
  const { total_documents } = await request<ListAnswer<Entry>>('GET', '/devices/', { query, signal });
  return total_documents > 0;
}
