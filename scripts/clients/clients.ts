// Generates clients from /openapi.json with the generators of the package registries, compiles them, and runs a round trip
// with each against a service of its own: create, stream, list, update against a conflict, delete.
//
//   npm run clients [-- TARGET…]
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { startInstance } from '../support/instance.js';
import { findFreePort } from '../support/service-process.js';
import { type Target, targets } from './targets.js';
import { StageError, type Toolbox } from './toolbox.js';

const cache = join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'device-platform/clients');

const requested = process.argv.slice(2);
const unknown = requested.filter((name) => !targets.some((target) => target.name === name));
if (unknown.length > 0) {
  console.error(`unknown: ${unknown.join(', ')}; there are ${targets.map(({ name }) => name).join(', ')}`);
  process.exit(2);
}

const instance = await startInstance({ PORT: String(await findFreePort()) });
try {
  const document = join(instance.folder, 'openapi.json');
  await writeFile(document, await (await fetch(`${instance.url}/openapi.json`)).text());
  for (const target of targets) {
    if (requested.length > 0 && !requested.includes(target.name)) continue;
    const folder = join(cache, 'generated', target.name);
    await rm(folder, { recursive: true, force: true });
    await mkdir(folder, { recursive: true });
    const API_KEY = await instance.issueKey(target.name, 'write');
    await report(target, { cache, folder, document, service: { DEVICE_PLATFORM_URL: instance.url, API_KEY } });
  }
} finally {
  await instance.close();
}

/** Checks a target and prints its line; a failure sets the exit code. */
async function report({ name, check }: Target, toolbox: Toolbox): Promise<void> {
  try {
    await check(toolbox);
    console.log(`${name}: round trip holds`);
  } catch (error) {
    if (!(error instanceof StageError)) throw error;
    if (error.stage === 'install') console.log(`${name}: not installed: ${error.message}`);
    else {
      console.log(`${name}: ${error.stage} failed: ${error.message}`);
      process.exitCode = 1;
    }
  }
}
