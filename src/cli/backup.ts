import { Command } from 'commander';
import { formatTotals } from '../backup/header.js';
import { writeBackup } from '../backup/write-backup.js';
import { finishLog } from '../events/log-reader.js';
import { silentLog } from '../lib/log.js';
import { createPassphraseOption, formatBytes, runOnDatabase } from './database-tool.js';
import { createProgress } from './progress.js';

/** A lease of a service that was killed ends after 5 s. */
const log_limit_ms = 30_000;

const program = new Command('backup')
  .description(
    'Writes everything that the service has acknowledged so far to a file, as of one moment: the database of ' +
      'MONGODB_URI or, if unset, the embedded one of DATA_DIR. The service may run or not.',
  )
  .argument('<file>', 'file to write; it is replaced once the backup is complete')
  .addOption(
    createPassphraseOption(
      'takes SECRET_KEY along, encrypted under this passphrase; without it, linked storages and secrets of webhooks have to be ' +
        'set anew where a restored service has another SECRET_KEY',
    ),
  )
  .action(async (path: string, options: { passphrase?: string }) => {
    const { show, stop } = createProgress(process.stderr, 'documents');
    const tool = { tool: 'backup', mode: 'existing', ...options } as const;
    await runOnDatabase(tool, async ({ connection, passphrase, findSecretKey }) => {
      const secret_key = passphrase === undefined ? undefined : await findSecretKey();
      const isLogComplete = await finishLog(connection.access, silentLog, log_limit_ms);
      const backup = { connection, path, passphrase, secret_key, showProgress: show };
      const { totals, bytes } = await writeBackup(backup).finally(stop);
      process.stdout.write(`${path}: ${formatTotals(totals)}; ${formatBytes(bytes)}\n`);
      if (!isLogComplete)
        process.stdout.write('the events of the last changes are not in the file: they take too long\n');
      if (secret_key === undefined)
        process.stdout.write('SECRET_KEY is not in the file; keep it, or use --passphrase to take it along\n');
    });
  });

await program.parseAsync();
