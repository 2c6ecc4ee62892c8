import { readFileSync, realpathSync, writeFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import { createMetrics } from '../src/metrics/metrics.js';

const page = 'docs/operations.md';
const begin = '<!-- metrics: written by `npm run metrics` from src/metrics -->\n\n';
const end = '\n<!-- /metrics -->\n';

/** A declared metric. */
export interface DeclaredMetric {
  name: string;
  type: string;
  labelNames: readonly string[];
  help: string;
}

/** Lists all metrics in the order of their declaration, those of the runtime last. */
export async function listMetrics(): Promise<DeclaredMetric[]> {
  const { registry } = createMetrics({ version: '', readState: () => ({ isReady: false, hasPrimary: false }) });
  const snapshot = await registry.getMetricsAsJSON();
  return snapshot.map(({ name, help, type }) => {
    const { labelNames = [] } = registry.getSingleMetric(name) as { labelNames?: readonly string[] };
    return { name, type: String(type), labelNames: labelNames.filter((label) => label !== 'le'), help };
  });
}

/** Replaces the table between the markers with one made from the declarations. @throws Error without the markers */
export async function withMetricsTable(text: string): Promise<string> {
  const [from, to] = [text.indexOf(begin), text.indexOf(end)];
  if (from < 0 || to < from) throw new Error(`${page} must hold the markers ${begin.trim()} and ${end.trim()}`);
  const rows = (await listMetrics()).map(({ name, type, labelNames, help }) => {
    const labels = labelNames.map((label) => `\`${label}\``).join(', ');
    return `| \`${name}\`${labels === '' ? '' : ` (${labels})`} | ${type} | ${help.replace(/\.$/, '')} |`;
  });
  return `${text.slice(0, from)}${begin}| metric | type | meaning |\n|---|---|---|\n${rows.join('\n')}\n${text.slice(to)}`;
}

const [, entry = ''] = process.argv;
if (entry !== '' && import.meta.url === pathToFileURL(realpathSync(entry)).href)
  writeFileSync(page, await withMetricsTable(readFileSync(page, 'utf8')));
