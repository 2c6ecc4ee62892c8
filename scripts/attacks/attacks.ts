import { Command, InvalidArgumentError } from 'commander';
import { connectionAttacks } from './connections.js';
import { dataAttacks } from './data.js';
import { memoryAttacks } from './memory.js';
import { mqttAttacks } from './mqtt.js';
import { mqttProtocolAttacks } from './mqtt-protocol.js';
import { createShareAttacks, formatFigures, type ShareResult } from './shares.js';
import { storageAttacks } from './storage.js';
import { type Attack, checkAftermath, observe, startTarget, type Target } from './target.js';

interface Options {
  large?: boolean;
  only?: string;
  patience: number;
}

const attack_limit_minutes = 10;
const large_attack_limit_minutes = 60;

const {
  large = false,
  only = '',
  patience,
} = new Command('attacks')
  .description('Attacks a fresh instance of the service on 127.0.0.1 and checks that it goes on serving others.')
  .option(
    '--large',
    'delete up to 10 million streams and create 40,000 devices of one name; takes up to an hour longer',
  )
  .option('--only <text>', 'attacks whose name contains the text')
  .option('--patience <n>', 'factor for the time limits, on a busy machine', parseFactor, 1)
  .parse()
  .opts<Options>();

const shareResults: ShareResult[] = [];
const attacks: readonly Attack[] = [
  ...connectionAttacks,
  ...memoryAttacks,
  ...dataAttacks,
  ...mqttAttacks,
  ...mqttProtocolAttacks,
  ...storageAttacks,
  ...createShareAttacks(shareResults),
].filter(({ name }) => name.includes(only));

function parseFactor(text: string): number {
  if (!/^[1-9][0-9]?$/.test(text)) throw new InvalidArgumentError('must be a whole number from 1 to 99.');
  return Number(text);
}

/** @returns the reason why something does not hold, or undefined */
async function findFailure(target: Target, attack: Attack): Promise<string | undefined> {
  const observer = observe(target);
  const limit_minutes = target.isLarge ? large_attack_limit_minutes : attack_limit_minutes;
  const limit = AbortSignal.timeout(limit_minutes * 60_000);
  const late = new Promise<never>((_, reject) => {
    limit.addEventListener('abort', () => reject(new Error(`not finished after ${limit_minutes} minutes`)));
  });
  const toText = (error: unknown) => (error instanceof Error ? error.message : String(error));
  const reason = await Promise.race([attack.run(target), late]).then(() => undefined, toText);
  const observation = await observer.stop();
  const aftermath = await checkAftermath(target, observation).then(() => undefined, toText);
  return [reason, aftermath].filter(Boolean).join('; ') || undefined;
}

let target = await startTarget({ isLarge: large, patience });
let held = 0;
try {
  for (const attack of attacks) {
    const failure = await findFailure(target, attack);
    console.log(`${attack.name}: ${failure === undefined ? 'holds' : `FAILS: ${failure}`}`);
    if (failure === undefined) {
      held++;
      continue;
    }
    // what one attack has broken must not count against the next one
    await target.close();
    target = await startTarget({ isLarge: large, patience });
  }
} finally {
  await target.close();
}
if (shareResults.length > 0) console.log(formatFigures(shareResults));
console.log(`attacks: ${held} of ${attacks.length} hold`);
process.exit(held === attacks.length ? 0 : 1);
