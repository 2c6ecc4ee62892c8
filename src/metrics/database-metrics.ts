import { Counter, Gauge, Histogram, type Registry } from 'prom-client';
import type { PoolMetrics, PoolState } from '../db/pool-events.js';
import { severities } from '../resources/alarm-states.js';
import { statuses } from '../resources/device/status.js';
import type { FleetCounts } from './fleet-counts.js';

/** State of a process as far as it is known without a query. */
export interface ProcessState {
  isReady: boolean;
  hasPrimary: boolean;
  /** Milliseconds by which the clock is ahead of that of the database. */
  clock_offset_ms: number;
}

/** Declares the version, readiness and the state of the database; of several workers the worst. */
export function createStateMetrics(registry: Registry, version: string, readState: () => ProcessState): void {
  const registers = [registry];
  const aggregator = 'min';
  new Gauge({
    name: 'device_platform_build_info',
    help: 'Always 1',
    labelNames: ['version'],
    registers,
    aggregator,
  }).set({ version }, 1);
  new Gauge({
    name: 'device_platform_ready',
    help: '1 while `/readyz` is 200',
    registers,
    aggregator,
    collect() {
      this.set(Number(readState().isReady));
    },
  });
  new Gauge({
    name: 'database_up',
    help: '1 while a primary is known',
    registers,
    aggregator,
    collect() {
      this.set(Number(readState().hasPrimary));
    },
  });
  new Gauge({
    name: 'clock_offset_seconds',
    help: 'Seconds by which the clock is ahead of that of the database; beyond 60, status, alarms and expiry wait',
    registers,
    aggregator: 'average',
    collect() {
      this.set(readState().clock_offset_ms / 1000);
    },
  });
}

/** Declares the time that is left of the certificate; of several workers the least. */
export function createCertificateMetrics(registry: Registry, readSecondsLeft: (() => number) | undefined): void {
  new Gauge({
    name: 'tls_certificate_ends_in_seconds',
    help: 'Seconds until the certificate of `TLS_CERT_FILE` ends, negative after it; absent without TLS',
    registers: [registry],
    aggregator: 'min',
    collect() {
      this.remove();
      if (readSecondsLeft !== undefined) this.set(readSecondsLeft());
    },
  });
}

/** Declares the metrics of the connection pools. */
export function createPoolMetrics(registry: Registry): PoolMetrics {
  const registers = [registry];
  const state: PoolState = { open: 0, in_use: 0, waiting: 0 };
  new Gauge({
    name: 'database_pool_connections',
    help: 'Connections to the database, `in_use` or `idle`',
    labelNames: ['state'],
    registers,
    collect() {
      this.set({ state: 'in_use' }, state.in_use);
      this.set({ state: 'idle' }, state.open - state.in_use);
    },
  });
  new Gauge({
    name: 'database_pool_waiting',
    help: 'Operations that wait for a connection',
    registers,
    collect() {
      this.set(state.waiting);
    },
  });
  const waits = new Histogram({
    name: 'database_pool_wait_seconds',
    help: 'Time for which operations waited for a connection',
    buckets: [0.001, 0.005, 0.025, 0.1, 0.5, 2.5],
    registers,
  });
  const failures = new Counter({
    name: 'database_pool_wait_failures_total',
    help: 'Operations that got no connection',
    registers,
  });
  return {
    state,
    waited: (milliseconds) => waits.observe(milliseconds / 1000),
    failed: () => failures.inc(),
  };
}

/** Declares the sizes of the installation, which only the instance that counts has. */
export function createFleetMetrics(registry: Registry): (counts: FleetCounts | undefined) => void {
  const registers = [registry];
  const aggregator = 'max';
  const accounts = new Gauge({
    name: 'fleet_accounts',
    help: 'Accounts with an API key',
    registers,
    aggregator,
  });
  const devices = new Gauge({
    name: 'fleet_devices',
    help: 'Devices of all accounts',
    labelNames: ['status'],
    registers,
    aggregator,
  });
  const alarms = new Gauge({
    name: 'alarms_open',
    help: 'Open alarms of accounts that have some',
    labelNames: ['account', 'severity'],
    registers,
    aggregator,
  });
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
