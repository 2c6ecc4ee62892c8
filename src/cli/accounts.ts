import { Command, InvalidArgumentError } from 'commander';
import { runOnDatabase } from './database-tool.js';
import { createProgress } from './progress.js';
import { listAccounts, removeAccount } from './remove-account.js';

const print = (line: string) => process.stdout.write(`${line}\n`);
const tool = { tool: 'accounts', mode: 'existing' } as const;

function parseCount(text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw new InvalidArgumentError('must be the number of devices of the account');
  return Number(text);
}

const program = new Command('accounts').description(
  'Lists and removes accounts; an account is created with its first key',
);

program
  .command('list')
  .description('list the accounts with the numbers of their devices')
  .action(() =>
    runOnDatabase(tool, async ({ connection }) => {
      for (const { account, devices, isBeingRemoved } of await listAccounts(connection))
        print(`${account}\t${devices} devices${isBeingRemoved ? '\tremoval interrupted: repeat it' : ''}`);
    }),
  );

program
  .command('remove')
  .description(
    'remove an account with everything it has, while the service runs or not; repeat it after an interruption',
  )
  .argument('<account>', 'name of the account')
  .option('--confirm <number>', 'number of its devices', parseCount)
  .action((account: string, { confirm }: { confirm?: number }) =>
    runOnDatabase(tool, async ({ connection }) => {
      const { show, stop } = createProgress(process.stderr, 'documents');
      let done = 0;
      const showProgress = (deleted: number) => {
        done += deleted;
        show(done, done);
      };
      const total = await removeAccount(connection, { account, confirmed: confirm }, showProgress).finally(stop);
      print(`removed ${account}: ${total} documents`);
    }),
  );

await program.parseAsync();
