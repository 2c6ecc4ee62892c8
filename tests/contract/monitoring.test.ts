import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { describe, expect, it } from '@jest/globals';
import { parse } from 'yaml';
import { type DeclaredMetric, listMetrics } from '../../scripts/docs.js';

interface Panel {
  id: number;
  type: string;
  title: string;
  gridPos: { x: number; y: number; w: number; h: number };
  targets?: { expr: string; datasource: { uid: string } }[];
}

interface Rule {
  alert: string;
  expr: string;
  labels: { severity: string };
  annotations: { summary: string };
}

const alert_tests = 'tests/contract/fixtures/alerts.test.yml';
const dashboard = JSON.parse(readFileSync('docs/grafana.json', 'utf8'));
const panels: Panel[] = dashboard.panels;
const { groups } = parse(readFileSync('docs/alerts.yml', 'utf8')) as { groups: { rules: Rule[] }[] };
const rules = groups.flatMap((group) => group.rules);
const expressions = [
  ...panels.flatMap(({ title, targets = [] }) => targets.map(({ expr }) => [title, expr] as const)),
  ...rules.map(({ alert, expr }) => [alert, expr] as const),
];

/** Selectors of an expression: the name of the metric and the labels compared in braces. */
function selectorsOf(expr: string): { name: string; labels: string[] }[] {
  return [...expr.matchAll(/\b([a-z][a-z0-9]*(?:_[a-z0-9]+)+)(?:\{([^}]*)\})?/g)]
    .filter(
      ([, name = '']) => !/^(?:histogram_quantile|last_over_time|group_left|__rate_interval|rate_interval)$/.test(name),
    )
    .map(([, name = '', matchers = '']) => ({
      name,
      labels: [...matchers.matchAll(/(\w+)\s*(?:=~|!~|!=|=)/g)].map(([, label = '']) => label),
    }));
}

const metrics = new Map(
  (await listMetrics()).flatMap((metric): [string, DeclaredMetric][] =>
    metric.type === 'histogram'
      ? ['_bucket', '_sum', '_count'].map((end): [string, DeclaredMetric] => [metric.name + end, metric])
      : [[metric.name, metric]],
  ),
);

describe('an expression of the dashboard or the alerts', () => {
  it.each(expressions)('%s: has metrics and labels of the service only', (_, expr) => {
    const selectors = selectorsOf(expr);
    expect(selectors.length).toBeGreaterThan(0);
    for (const { name, labels } of selectors) {
      const known = [...(metrics.get(name)?.labelNames ?? []), 'job', 'instance'];
      expect([name, metrics.has(name), labels.filter((label) => !known.includes(label))]).toEqual([name, true, []]);
    }
  });

  it.each(expressions)('%s: takes rates of counters, and groups by labels of its metrics', (_, expr) => {
    for (const [, name = ''] of expr.matchAll(/\b(?:rate|increase)\((\w+)/g)) {
      expect([name, metrics.get(name)?.type]).toEqual([name, expect.stringMatching(/^(?:counter|histogram)$/)]);
    }
    const known = selectorsOf(expr).flatMap(({ name }) => metrics.get(name)?.labelNames ?? []);
    for (const [, labels = ''] of expr.matchAll(/\b(?:by|ignoring) \(([^)]*)\)/g))
      for (const label of labels.split(', ')) expect([...known, 'le', 'job', 'instance']).toContain(label);
  });
});

describe('the dashboard', () => {
  it('is one that Grafana 11 imports', () => {
    expect(dashboard).toMatchObject({ schemaVersion: 39, title: 'Device platform', uid: 'device-platform' });
    expect(dashboard).not.toHaveProperty('id');
    const variables = dashboard.templating.list.map(({ name }: { name: string }) => name);
    expect(variables).toEqual(['datasource', 'job', 'instance']);
    for (const { targets = [] } of panels)
      for (const { datasource } of targets)
        expect(datasource).toEqual({ type: 'prometheus', uid: `\${${variables[0]}}` });
  });

  it('has panels that do not overlap', () => {
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
    const cells = panels.flatMap(({ gridPos: { x, y, w, h } }) => {
      expect(x + w).toBeLessThanOrEqual(24);
      return Array.from({ length: w * h }, (_, n) => `${x + (n % w)} ${y + Math.floor(n / w)}`);
    });
    expect(new Set(cells).size).toBe(cells.length);
  });

  it('shows every metric of the service, those of the runtime aside', () => {
    const shown = new Set(
      panels
        .flatMap(({ targets = [] }) => targets.flatMap(({ expr }) => selectorsOf(expr)))
        .map(({ name }) => metrics.get(name)?.name),
    );
    const own = [...metrics.values()].map(({ name }) => name).filter((name) => !/^(?:nodejs|process)_/.test(name));
    expect(own.filter((name) => !shown.has(name))).toEqual([]);
  });
});

describe('the alerts', () => {
  it('have a name of their own, a severity and a summary', () => {
    expect(new Set(rules.map(({ alert }) => alert)).size).toBe(rules.length);
    for (const { alert, labels, annotations } of rules) {
      expect(alert).toMatch(/^DevicePlatform[A-Z]/);
      expect(['critical', 'warning']).toContain(labels.severity);
      expect(annotations.summary).not.toBe('');
    }
  });

  it('each have a test that raises them', () => {
    const { tests } = parse(readFileSync(alert_tests, 'utf8')) as {
      tests: { alert_rule_test: { alertname: string; exp_alerts: unknown[] }[] }[];
    };
    const cases = tests.flatMap(({ alert_rule_test }) => alert_rule_test);
    const raised = new Set(cases.filter(({ exp_alerts }) => exp_alerts.length > 0).map(({ alertname }) => alertname));
    expect(rules.map(({ alert }) => alert).filter((alert) => !raised.has(alert))).toEqual([]);
  });

  const promtool = (...args: string[]) => spawnSync('promtool', args, { encoding: 'utf8' });
  const isInstalled = promtool('--version').status === 0;
  const itWithPromtool = isInstalled ? it : it.skip;

  itWithPromtool('pass `promtool check rules` (package prometheus of Debian)', () => {
    const { status, stdout } = promtool('check', 'rules', 'docs/alerts.yml');
    expect([status, stdout]).toEqual([0, expect.stringContaining(`${rules.length} rules found`)]);
  });

  itWithPromtool('are raised by the series that they describe (`promtool test rules`)', () => {
    const { status, stdout, stderr } = promtool('test', 'rules', alert_tests);
    expect([status, stdout + stderr]).toEqual([0, expect.stringContaining('SUCCESS')]);
  });
});
