import { Command } from 'commander';
import { restoreBackup } from '../backup/restore-backup.js';
import { createPassphraseOption, formatTotals, runOnDatabase } from './database-tool.js';
import { createProgress } from './progress.js';

const program = new Command('restore')
  .description(
    'Replaces everything in the database of MONGODB_URI or, if unset, in the embedded one of DATA_DIR by a backup. The ' +
      'service must not run. A file that is not whole changes nothing; an interrupted restore can be repeated.',
  )
  .argument('<file>', 'file that `npm run backup` has written')
  .addOption(createPassphraseOption('passphrase of the backup, to take its linked storages over'))
  .action(async (path: string, { passphrase }: { passphrase?: string }) => {
    const { show, stop } = createProgress(process.stderr, 'documents');
    await runOnDatabase('restore', 'exclusive', async ({ connection, isExclusive, findSecretKey }) => {
      const restore = { connection, path, passphrase, isExclusive, chooseSecretKey: findSecretKey, showProgress: show };
      const { totals, created_at, unreadableStorages } = await restoreBackup(restore).finally(stop);
      process.stdout.write(`restored the backup of ${created_at}: ${formatTotals(totals)}\n`);
      if (unreadableStorages > 0)
        process.stdout.write(
          `${unreadableStorages} linked storages have to be linked anew: they are encrypted under another SECRET_KEY\n`,
        );
    });
  });

await program.parseAsync();
