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
 * Starts HAProxy with examples/deploy/haproxy.cfg, its addresses replaced. Files are in `folder`.
 * @throws Error if HAProxy is not installed
 */
export async function startHaproxy(folder: string, backends: readonly Backend[]): Promise<Balancer> {
  const program = findProgram('haproxy');
  if (program === undefined) throw new Error('haproxy is not installed');
  const [http_port, mqtt_port] = [await findFreePort(), await findFreePort()];
  const [config, stats] = [join(folder, 'haproxy.cfg'), join(folder, 'haproxy.sock')];
  const replacements: [string, string][] = [
    ['bind :80\n', `bind 127.0.0.1:${http_port}\n`],
    ['bind :1883\n', `bind 127.0.0.1:${mqtt_port}\n`],
    ...backends.flatMap(({ url, mqtt_port }, index): [string, string][] => {
      const { port } = new URL(url);
      return [
        [`10.0.0.${11 + index}:3000\n`, `127.0.0.1:${port} check port ${port}\n`],
        [`10.0.0.${11 + index}:1883\n`, `127.0.0.1:${mqtt_port} check port ${port}\n`],
      ];
    }),
  ];
  const documented = readShipped('examples/deploy/haproxy.cfg', replacements);
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

  async function countReady(): Promise<number> {
    const rows = await readStats();
    const counts = ['http', 'mqtt'].map(
      (name) =>
        rows.filter(({ pxname, svname, status, check_status }) => {
          const isServer = pxname === name && svname !== 'FRONTEND' && svname !== 'BACKEND';
          // before its first check, a server counts as up
          return isServer && status === 'UP' && check_status === 'L7OK';
        }).length,
    );
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
