import { Command, Option } from 'commander';
import { createProgress } from './progress.js';
import { type LineAnswer, sendImport } from './send-import.js';
import { describeFailure, resolveService, type ServiceOptions, withServiceOptions } from './service-options.js';

interface Options extends ServiceOptions {
  format?: 'csv' | 'ndjson';
  resource?: string;
  account?: string;
  onConflict?: string;
  dryRun?: true;
  all?: true;
}

const types = ['project', 'service', 'group', 'asset', 'device', 'model', 'stream'];
const contentTypes = { csv: 'text/csv', ndjson: 'application/x-ndjson' } as const;

function contentTypeOf(path: string, format: Options['format']): string | undefined {
  if (format !== undefined) return contentTypes[format];
  if (/\.csv$/i.test(path)) return contentTypes.csv;
  return /\.(?:ndjson|jsonl)$/i.test(path) ? contentTypes.ndjson : undefined;
}

const program: Command = withServiceOptions(new Command('import'), 'write')
  .description(
    'Creates or updates the objects, or stores the streams, of a file of CSV or JSON lines. Lines that fail are printed, and do not stop the ' +
      'others. With --on-conflict skip or update a file may be imported again, except for devices without id_developer.',
  )
  .argument('<file>', 'file to read; - is standard input')
  .addOption(
    new Option('--format <format>', 'default: by the name of the file, or its content').choices(['csv', 'ndjson']),
  )
  .addOption(new Option('--resource <type>', 'type of the lines that name none').choices(types))
  .option('--account <name>', 'account whose identifiers are moved to the account of the key')
  .addOption(
    new Option('--on-conflict <treatment>', 'treatment of objects that exist (default: skip)').choices([
      'skip',
      'update',
      'fail',
      'create',
    ]),
  )
  .option('--dry-run', 'answer the same and change nothing')
  .option('--all', 'print the answers to all lines, not only to those that fail')
  .action(async (path: string, options: Options) => {
    const { format, resource, account, onConflict, dryRun, all } = options;
    const params = { resource, account, on_conflict: onConflict, dry_run: dryRun ? '1' : undefined };
    const parameters = new Map(
      Object.entries(params).filter((entry): entry is [string, string] => entry[1] !== undefined),
    );
    const { show, stop } = createProgress(process.stderr, 'bytes');
    const report = (answer: LineAnswer) => {
      if (all || answer.code >= 4000) process.stdout.write(`${JSON.stringify(answer)}\n`);
    };
    try {
      const service = resolveService(options, process.env);
      const content_type = contentTypeOf(path, format);
      const totals = await sendImport({
        ...service,
        path,
        content_type,
        parameters,
        report,
        showProgress: show,
      }).finally(stop);
      const counts = Object.entries(totals).map(([outcome, count]) => `${count} ${outcome}`);
      process.stderr.write(`${counts.join(', ')}${dryRun ? '; nothing was changed' : ''}\n`);
      if (totals.failed > 0) process.exitCode = 1;
    } catch (error) {
      program.error(`import: ${describeFailure(error)}`);
    }
  });

await program.parseAsync();
