import { Command } from 'commander';
import { connectionAttacks } from './connections.js';
import { dataAttacks } from './data.js';
import { memoryAttacks } from './memory.js';
import { mqttAttacks } from './mqtt.js';
import { mqttProtocolAttacks } from './mqtt-protocol.js';
import { storageAttacks } from './storage.js';
import { type Attack, checkAftermath, observe, startTarget, type Target } from './target.js';

interface Options {
  large?: boolean;
  only?: string;
}

const attack_limit_ms = 10 * 60_000;

const { large = false, only = '' } = new Command('attacks')
  .description('Attacks a fresh instance of the service on 127.0.0.1 and checks that it goes on serving others.')
  .option('--large', 'delete 500,000 streams and create 40,000 devices of one name; takes minutes longer')
  .option('--only <text>', 'attacks whose name contains the text')
  .parse()
  .opts<Options>();

const attacks: readonly Attack[] = [
  ...connectionAttacks,
  ...memoryAttacks,
  ...dataAttacks,
  ...mqttAttacks,
  ...mqttProtocolAttacks,
  ...storageAttacks,
].filter(({ name }) => name.includes(only));

/** @returns the reason why something does not hold, or undefined */
async function findFailure(target: Target, attack: Attack): Promise<string | undefined> {
  const observer = observe(target);
  const limit = AbortSignal.timeout(attack_limit_ms);
  const late = new Promise<never>((_, reject) => {
    limit.addEventListener('abort', () => reject(new Error(`not finished after ${attack_limit_ms / 60_000} minutes`)));
  });
  const toText = (error: unknown) => (error instanceof Error ? error.message : String(error));
  const reason = await Promise.race([attack.run(target), late]).then(() => undefined, toText);
  const observation = await observer.stop();
  const aftermath = await checkAftermath(target, observation).then(() => undefined, toText);
  return [reason, aftermath].filter(Boolean).join('; ') || undefined;
}

let target = await startTarget(large);
let held = 0;
try {
  for (const attack of attacks) {
    const failure = await findFailure(target, attack);
    console.log(`${failure === undefined ? 'holds' : `FAILS: ${failure}`}   ${attack.name}`);
    if (failure === undefined) {
      held++;
      continue;
    }
    // what one attack has broken must not count against the next one
    await target.close();
    target = await startTarget(large);
  }
} finally {
  await target.close();
}
console.log(`attacks: ${held} of ${attacks.length} hold`);
process.exit(held === attacks.length ? 0 : 1);
