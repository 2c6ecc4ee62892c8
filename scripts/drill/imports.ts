import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { startHaproxy } from '../../tests/support/haproxy.js';
import { startNginx } from '../../tests/support/nginx.js';
import { runTool } from '../../tests/support/tools.js';
import { startInstance } from '../support/instance.js';
import { findProgram } from '../support/service-process.js';
import type { Outcome } from './outcome.js';

const line_count = 50_000;

/** Reports whether both proxies of examples/ are installed. */
export const hasProxies = () => ['nginx', 'haproxy'].every((program) => findProgram(program) !== undefined);

/** Imports 50 MB of models with `npm run import` through nginx, and again through HAProxy, as examples/ configures them. */
export async function drillImports(): Promise<Outcome> {
  const instance = await startInstance();
  const { url, key, folder, mqttPort: mqtt_port } = instance;
  const faults: string[] = [];
  try {
    const file = join(folder, 'models.ndjson');
    const properties = { note: 'x'.repeat(960) };
    const lineOf = (_: unknown, number: number) =>
      JSON.stringify({ resource: 'model', name: `M ${number}`, properties });
    await writeFile(file, Array.from({ length: line_count }, lineOf).join('\n'));
    const haproxy = await startHaproxy(folder, [{ url, mqtt_port }]);
    await haproxy.waitForReady(2);
    const nginx = await startNginx(folder, url);
    for (const [name, proxy, expected] of [
      ['nginx', nginx, `${line_count} created, 0 updated, 0 skipped, 0 failed`],
      ['HAProxy', haproxy, `0 created, 0 updated, ${line_count} skipped, 0 failed`],
    ] as const) {
      const { complaints } = await runTool('import', [file, '--url', proxy.url, '--key', key]);
      if (complaints.join() !== expected) faults.push(`${name}: ${complaints.join('; ')} instead of ${expected}`);
      await proxy.close();
    }
    const stored = await (await instance.database()).collection('models').countDocuments();
    if (stored !== line_count) faults.push(`${stored} of ${line_count} models are stored`);
    return { counted: `${line_count} models, 50 MB, through nginx and HAProxy`, faults };
  } finally {
    await instance.close();
  }
}
