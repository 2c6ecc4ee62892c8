import { randomBytes } from 'node:crypto';
import { Command } from 'commander';
import { account, createClient, createDeviceBody, createGroups, groupId, spareGroup } from './data.js';
import { createGeneratorOption, type Environment, parseCount, withEnvironment } from './environment.js';
import { findGenerator } from './generator.js';
import { readPeakMib, resetPeakMemory } from './process.js';
import { printProgress } from './progress.js';
import { startService } from './server.js';

interface Options {
  devices: number;
  seconds: number;
  rounds: number;
  generator?: string;
}

const options = new Command('import')
  .description('Compares the import of devices with single creates over 32 connections.')
  .option('--devices <n>', 'devices of one import', parseCount, 100_000)
  .option('--seconds <n>', 'length of a measurement of single creates', parseCount, 10)
  .option('--rounds <n>', 'measurements of each, in turns', parseCount, 2)
  .addOption(createGeneratorOption())
  .parse()
  .opts<Options>();

async function main({ folder, mongod, closers }: Environment): Promise<void> {
  const generator = await findGenerator(folder, options.generator);
  const key = randomBytes(16).toString('hex');
  const service = await startService({ folder, uri: mongod.uri('import'), key });
  closers.push(service.stop);
  await createGroups(createClient(service.url, key), []);
  const headers = { 'service.apikey': key };
  for (let round = 1; round <= options.rounds; round++) {
    const body = JSON.stringify(createDeviceBody(`single-${round}-<n>`, groupId(spareGroup), 300_000));
    const requests = { method: 'POST', headers, paths: ['/devices/'], body } as const;
    const singles = await generator.run({ url: service.url, requests, connections: 32, seconds: options.seconds });
    console.log(`single creates (${generator.name}): ${Math.round(singles.per_second)}/s, ${singles.failed} failed`);
    await resetPeakMemory(service.pid);
    for (const [name, query] of [
      ['import', ''],
      ['the same again', ''],
      ['dry run', '?dry_run=1'],
    ] as const) {
      const { seconds, totals } = await importDevices(`${service.url}/import/${query}`, headers, round);
      console.log(`${name}: ${Math.round(options.devices / seconds)}/s, ${totals}`);
    }
    console.log(`peak memory of the service: ${await readPeakMib(service.pid)} MiB`);
  }
  const count = await mongod.db('import').collection('devices').countDocuments({ account });
  printProgress(`${count} devices in the end`);
}

/** Sends one import as a stream. @returns the last line of its answer */
async function importDevices(url: string, headers: Record<string, string>, round: number) {
  const started_at = performance.now();
  const body = new ReadableStream({
    pull(controller) {
      for (let sent = 0; sent < lines_per_chunk && next < options.devices; sent++, next++) {
        const device = createDeviceBody(`import-${round}-${next}`, groupId(spareGroup), next);
        const line = { resource: 'device', id_developer: `${device.name}@${account}`, ...device };
        controller.enqueue(Buffer.from(`${JSON.stringify(line)}\n`));
      }
      if (next >= options.devices) controller.close();
    },
  });
  let next = 0;
  const response = await fetch(url, { method: 'POST', headers, body, duplex: 'half' } as RequestInit);
  const lines = (await response.text()).trimEnd().split('\n');
  return { seconds: (performance.now() - started_at) / 1000, totals: lines.at(-1) };
}

const lines_per_chunk = 100;

await withEnvironment(main);
