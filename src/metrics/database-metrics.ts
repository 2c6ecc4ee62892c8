import type { PoolMetrics, PoolState } from '../db/pool-events.js';
import { severities } from '../resources/alarm-states.js';
import { statuses } from '../resources/device/status.js';
import type { FleetCounts } from './fleet-counts.js';
import type { MetricFactory } from './metric-factory.js';

/** State of a process as far as it is known without a query. */
export interface ProcessState {
  isReady: boolean;
  hasPrimary: boolean;
  /** Milliseconds by which the clock is ahead of that of the database. */
  clock_offset_ms: number;
}

/** Declares the version, readiness and the state of the database; of several workers the worst. */
export function createStateMetrics({ gauge }: MetricFactory, version: string, readState: () => ProcessState): void {
  const aggregator = 'min';
  const build = gauge('device_platform_build_info', 'Always 1', { labelNames: ['version'], aggregator });
  build.set({ version }, 1);
  gauge('device_platform_ready', '1 while `/readyz` is 200', {
    aggregator,
    collect: (ready) => ready.set(Number(readState().isReady)),
  });
  gauge('database_up', '1 while a primary is known', {
    aggregator,
    collect: (up) => up.set(Number(readState().hasPrimary)),
  });
  gauge(
    'clock_offset_seconds',
    'Seconds by which the clock is ahead of that of the database; beyond 60, status, alarms and expiry wait',
    { aggregator: 'average', collect: (offset) => offset.set(readState().clock_offset_ms / 1000) },
  );
}

/** Declares the time that is left of the certificate; of several workers the least. */
export function createCertificateMetrics({ gauge }: MetricFactory, readSecondsLeft: (() => number) | undefined): void {
  const help = 'Seconds until the certificate of `TLS_CERT_FILE` ends, negative after it; absent without TLS';
  const left = gauge('tls_certificate_ends_in_seconds', help, {
    aggregator: 'min',
    collect: (seconds) => readSecondsLeft && seconds.set(readSecondsLeft()),
  });
  left.remove();
}

/** Declares the metrics of the connection pools. */
export function createPoolMetrics({ counter, gauge, histogram }: MetricFactory): PoolMetrics {
  const state: PoolState = { open: 0, in_use: 0, waiting: 0 };
  gauge('database_pool_connections', 'Connections to the database, `in_use` or `idle`', {
    labelNames: ['state'],
    collect(connections) {
      connections.set({ state: 'in_use' }, state.in_use);
      connections.set({ state: 'idle' }, state.open - state.in_use);
    },
  });
  gauge('database_pool_waiting', 'Operations that wait for a connection', {
    collect: (waiting) => waiting.set(state.waiting),
  });
  const bounds = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5];
  const waits = histogram('database_pool_wait_seconds', 'Time for which operations waited for a connection', bounds);
  const failures = counter('database_pool_wait_failures_total', 'Operations that got no connection');
  return {
    state,
    waited: (milliseconds) => waits.observe(milliseconds / 1000),
    failed: () => failures.inc(),
  };
}

/** Declares the sizes of the installation, which only the instance that counts has. */
export function createFleetMetrics({ gauge }: MetricFactory): (counts: FleetCounts | undefined) => void {
  const aggregator = 'max';
  const accounts = gauge('fleet_accounts', 'Accounts with an API key', { aggregator });
  const devices = gauge('fleet_devices', 'Devices of all accounts', { labelNames: ['status'], aggregator });
  const labelNames: ('account' | 'severity')[] = ['account', 'severity'];
  const alarms = gauge('alarms_open', 'Open alarms of accounts that have some', { labelNames, aggregator });
  const report = (counts: FleetCounts | undefined) => {
    accounts.remove();
    devices.reset();
    alarms.reset();
    if (counts === undefined) return;
    accounts.set(counts.accounts);
    for (const status of statuses) devices.set({ status }, counts.devices[status]);
    for (const { account } of counts.alarms) for (const severity of severities) alarms.set({ account, severity }, 0);
    for (const { account, severity, count } of counts.alarms) alarms.set({ account, severity }, count);
  };
  report(undefined);
  return report;
}
