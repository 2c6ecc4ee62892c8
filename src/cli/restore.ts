import { Command } from 'commander';
import { formatTotals } from '../backup/header.js';
import { restoreBackup } from '../backup/restore-backup.js';
import { createPassphraseOption, runOnDatabase } from './database-tool.js';
import { createProgress } from './progress.js';

const program = new Command('restore')
  .description(
    'Loads a backup into the database of MONGODB_URI or, if unset, into the embedded one of DATA_DIR, which has to be empty. A ' +
      'file that is not whole changes nothing; an interrupted restore can be repeated.',
  )
  .argument('<file>', 'file that `npm run backup` has written')
  .addOption(createPassphraseOption('passphrase of the backup, to take its linked storages over'))
  .action(async (path: string, options: { passphrase?: string }) => {
    const { show, stop } = createProgress(process.stderr, 'documents');
    const tool = { tool: 'restore', mode: 'exclusive', ...options } as const;
    await runOnDatabase(tool, async ({ connection, passphrase, findSecretKey }) => {
      const restore = { connection, path, passphrase, chooseSecretKey: findSecretKey, showProgress: show };
      const { totals, created_at, unreadable, enabled_webhooks } = await restoreBackup(restore).finally(stop);
      process.stdout.write(`restored the backup of ${created_at}: ${formatTotals(totals)}\n`);
      if (enabled_webhooks > 0)
        process.stdout.write(
          `${enabled_webhooks} webhooks are enabled: unless this replaces the original, start with WEBHOOKS=off, or their receivers get its events too\n`,
        );
      const { storages, webhooks } = unreadable;
      if (storages + webhooks > 0)
        process.stdout.write(
          `under another SECRET_KEY: ${storages} linked storages, which have to be linked anew, and ${webhooks} webhooks, which need a new secret\n`,
        );
    });
  });

await program.parseAsync();
