import { setTimeout as sleep } from 'node:timers/promises';
import { Command, InvalidArgumentError } from 'commander';
import { openAccount } from '../attacks/attacker.js';
import { sharedAttacks } from '../attacks/attackers.js';
import { awaitWithin, countDescriptors, type Instance, readResident_mib, startInstance } from '../support/instance.js';
import { waitUntil } from '../support/service-process.js';
import { disturb } from './disturbances.js';
import { startAccount, type Tally } from './load.js';

const accounts = ['demo', 'acme', 'globex'];
const sample_ms = 2000;
const minute_ms = 60_000;
/** Minutes until the memory in use counts as settled; half the run if that is shorter. */
const settle_minutes = 5;
const max_growth = 1.1;
const descriptor_tolerance = 8;
const stop_limit_ms = 60_000;
const descriptor_limit_ms = 90_000;

/** Strength of the attackers: there are many at once. */
const attacker_strength = 0.1;
const attackerEnv = {
  NODE_OPTIONS: '--max-old-space-size=512',
  FILESTORE_ALLOW_NETS: '127.0.0.0/8',
  WEBHOOK_ALLOW_NETS: '127.0.0.0/8',
};

const { minutes, attackers } = new Command('soak')
  .description('Puts a fresh instance under mixed load, with slow and broken clients in between.')
  .option('--minutes <n>', 'length of the load', parseMinutes, 30)
  .option('--attackers', 'beside the attackers of `npm run attacks -- --only shares`, at a tenth of their strength')
  .parse()
  .opts<{ minutes: number; attackers?: true }>();

function parseMinutes(text: string): number {
  if (!/^[1-9][0-9]{0,3}$/.test(text) || Number(text) < 2)
    throw new InvalidArgumentError('must be a number from 2 to 9999.');
  return Number(text);
}

/** Applies the load and prints a line per minute. @returns what does not hold */
async function soak(instance: Instance): Promise<string[]> {
  const tally: Tally = { codes: new Map(), publishes: 0, unexpected: [] };
  const stopping = new AbortController();
  const { signal } = stopping;
  const descriptors = countDescriptors(instance);
  console.log(`start: ${readResident_mib(instance.pid)} MiB, ${descriptors} descriptors`);

  const work: Promise<void>[] = [];
  for (const account of accounts) {
    const key = account === 'demo' ? instance.key : await instance.issueKey(account, 'write');
    work.push(...(await startAccount({ instance, account, key, tally, signal })));
  }
  work.push(disturb(instance, signal));
  if (attackers) await startAttackers(instance, signal);
  const memory_mib: number[] = [];
  for (let minute = 1; minute <= minutes && !instance.hasExited(); minute++) {
    memory_mib.push(await averageMemory_mib(instance));
    printMinute(instance, minute, memory_mib.at(-1) ?? 0, tally);
  }
  stopping.abort();
  await awaitWithin(Promise.all(work), stop_limit_ms, 'ending the clients');
  return [
    ...checkAnswers(tally, instance.out()),
    ...(instance.hasExited() ? ['the service has ended'] : []),
    ...checkMemory(memory_mib),
    ...(await checkDescriptors(instance, descriptors)),
  ];
}

/** Starts each attack on shares, by an account of its own. */
async function startAttackers(instance: Instance, signal: AbortSignal): Promise<void> {
  const options = { strength: attacker_strength, signal };
  for (const [number, attack] of sharedAttacks.entries())
    await attack.start(await openAccount(instance, `attacker-${number}`, options));
}

/** @returns the mean of the resident memory over a minute, as single values depend on the last garbage collection */
async function averageMemory_mib(instance: Instance): Promise<number> {
  const samples: number[] = [];
  for (const end_ms = performance.now() + minute_ms; performance.now() < end_ms && !instance.hasExited(); ) {
    samples.push(readResident_mib(instance.pid));
    await sleep(sample_ms);
  }
  return Math.round(samples.reduce((sum, sample) => sum + sample, 0) / Math.max(1, samples.length));
}

function printMinute(
  instance: Instance,
  minute: number,
  memory_mib: number,
  { codes, publishes, unexpected }: Tally,
): void {
  const descriptors = instance.hasExited() ? 0 : countDescriptors(instance);
  const byCode = [...codes].sort(([a], [b]) => a - b).map(([code, count]) => `${code}: ${count}`);
  const parts = [`${memory_mib} MiB`, `${descriptors} descriptors`, byCode.join(', '), `${publishes} MQTT publishes`];
  console.log(`minute ${minute}: ${parts.join(' | ')} | ${unexpected.length} unexpected`);
}

/** @param log of the service, whose lines about unexpected answers say why */
function checkAnswers({ unexpected, publishes }: Tally, log: string): string[] {
  const failures = publishes === 0 ? ['no MQTT publish was acknowledged'] : [];
  if (unexpected.length > 0) failures.push(`${unexpected.length} unexpected answers:`, ...unexpected.slice(0, 10));
  const isExplained = (line: string) => {
    const request_id = /"request_id":"([^"]+)"/.exec(line)?.[1];
    return request_id !== undefined && unexpected.some((answer) => answer.includes(request_id));
  };
  return [...failures, ...log.split('\n').filter(isExplained).slice(0, 10)];
}

function checkMemory(memory_mib: readonly number[]): string[] {
  const settled = Math.min(settle_minutes, Math.ceil(minutes / 2));
  const [before = 0, after = 0] = [memory_mib[settled - 1], memory_mib.at(-1)];
  if (after <= before * max_growth) return [];
  return [`${after} MiB of memory in the last minute, ${before} MiB in minute ${settled}`];
}

async function checkDescriptors(instance: Instance, before: number): Promise<string[]> {
  if (instance.hasExited()) return [];
  const isBack = () => countDescriptors(instance) <= before + descriptor_tolerance;
  return waitUntil(isBack, descriptor_limit_ms).then(
    () => [],
    () => [`${countDescriptors(instance)} descriptors are open, ${before} before`],
  );
}

const instance = await startInstance({ LOG_LEVEL: 'debug', ...(attackers && attackerEnv) });
let failures: string[];
try {
  failures = await soak(instance);
} catch (error) {
  failures = [String(error)];
} finally {
  await instance.close();
}
console.log(failures.length === 0 ? 'soak: holds' : `soak: FAILS\n${failures.join('\n')}`);
process.exit(failures.length === 0 ? 0 : 1);
