import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { findFreePort, findProgram, startProcess, waitUntil } from '../../scripts/support/service-process.js';
import type { Backend, Balancer } from './balancer.js';

const start_timeout_ms = 60_000;

/** Reads a configuration of examples/. @throws Error if a text to replace is not there exactly once */
export function readShipped(file: string, replacements: readonly (readonly [from: string, to: string])[]): string {
  return replacements.reduce(
    (shipped, [from, to]) => {
      if (shipped.split(from).length !== 2) throw new Error(`not once in ${file}: ${from}`);
      return shipped.replace(from, to);
    },
    readFileSync(file, 'utf8'),
  );
}

/**
 * Starts HAProxy with examples/deploy/haproxy.cfg, its addresses replaced; a single backend takes both places. Files are in
 * `folder`.
 * @throws Error if HAProxy is not installed
 */
export async function startHaproxy(folder: string, backends: readonly Backend[]): Promise<Balancer> {
  const program = findProgram('haproxy');
  if (program === undefined) throw new Error('haproxy is not installed');
  const [http_port, mqtt_port] = [await findFreePort(), await findFreePort()];
  const [config, stats] = [join(folder, 'haproxy.cfg'), join(folder, 'haproxy.sock')];
  const shipped = readShipped('examples/deploy/haproxy.cfg', [
    ['bind :80\n', `bind 127.0.0.1:${http_port}\n`],
    ['bind :1883\n', `bind 127.0.0.1:${mqtt_port}\n`],
  ]);
  const documented = shipped.replace(
    /10\.0\.0\.1([12]):(\d+)(.*)/g,
    (_, place: string, port: string, options: string) => {
      const { url, mqtt_port } = backends[Number(place) - 1] ?? backends[0] ?? { url: '', mqtt_port: 0 };
      const check = options.includes('no-check') ? '' : ` check port ${new URL(url).port}`;
      return `127.0.0.1:${port === '3000' ? new URL(url).port : mqtt_port}${options}${check}`;
    },
  );
  await writeFile(config, `global\n    stats socket ${stats}\n\n${documented}`);
  const started = startProcess(program, ['-f', config, '-db'], { env: process.env });

  /** @returns counts by row and column of `show stat` */
  async function readStats(): Promise<Record<string, string>[]> {
    const socket = connect(stats);
    socket.end('show stat\n');
    const [head = '', ...rows] = (await text(socket)).trim().split('\n');
    const columns = head.replace(/^# /, '').split(',');
    return rows.map((row) => Object.fromEntries(row.split(',').map((value, index) => [columns[index] ?? '', value])));
  }

  /** @returns -1 before each server was checked */
  async function countReady(): Promise<number> {
    const rows = await readStats();
    const counts = ['http', 'mqtt'].map((name) => {
      const servers = rows.filter(({ pxname, svname = '' }) => pxname === name && /^[ab]$/.test(svname));
      // before its first check, a server counts as up
      const states = servers.map(({ status, check_status }) => (status === 'UP' ? check_status : status) ?? '');
      if (states.some((state) => !/^(?:L7OK|DOWN)/.test(state))) return -1;
      return states.filter((state) => state === 'L7OK').length;
    });
    return Math.min(...counts);
  }

  return {
    url: `http://127.0.0.1:${http_port}`,
    mqtt_url: `mqtt://127.0.0.1:${mqtt_port}`,
    waitForReady: (count) =>
      waitUntil(async () => {
        if (started.hasExited()) throw new Error(started.err());
        return (await countReady()) === count;
      }, start_timeout_ms),
    async countRefused() {
      const rows = await readStats();
      return rows.reduce((sum, { svname, econ }) => sum + (svname === 'BACKEND' ? Number(econ) : 0), 0);
    },
    close: () => started.stop('SIGKILL'),
  };
}
