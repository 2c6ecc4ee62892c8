import { once } from 'node:events';
import { createReadStream } from 'node:fs';
import { type FileHandle, open, rename } from 'node:fs/promises';
import { Command, InvalidArgumentError, Option } from 'commander';
import { createProgress } from './progress.js';
import { createRecordTracker, type ExportFormat, type ExportPosition } from './records.js';
import { describeFailure, resolveService, type ServiceOptions, withServiceOptions } from './service-options.js';
import { writeExport } from './write-export.js';

interface Options extends ServiceOptions {
  format?: ExportFormat;
  out?: string;
  resume?: true;
}

interface Target {
  written?: ExportPosition;
  write(records: Buffer): Promise<void>;
  finish(): Promise<void>;
  abort(): Promise<void>;
}

const singulars: ReadonlySet<string> = new Set([
  'project',
  'service',
  'group',
  'asset',
  'device',
  'model',
  'stream',
  'event',
]);

const noFilters: ReadonlyMap<string, string> = new Map();

function parseFilter(text: string, earlier: ReadonlyMap<string, string>): ReadonlyMap<string, string> {
  const [, name = '', value = ''] = /^([^=]+)=(.+)$/s.exec(text) ?? [];
  if (name === '' || name === 'format') throw new InvalidArgumentError('must be NAME=VALUE, such as type=pump.');
  if (earlier.has(name)) throw new InvalidArgumentError(`${name} must be given once.`);
  // the service is asked for what is left of it, so it cannot refuse it
  if (name === 'max' && !/^0*[1-9]\d*$/.test(value))
    throw new InvalidArgumentError('max must be an integer of at least 1.');
  return new Map([...earlier, [name, value]]);
}

/** Standard output: after a lost connection it continues, but an earlier run cannot be continued. */
function createOutputTarget(): Target {
  const { stdout } = process;
  return {
    async write(records) {
      if (!stdout.write(records)) await once(stdout, 'drain');
    },
    finish: async () => undefined,
    abort: async () => undefined,
  };
}

/** A file that has its name only once it is whole. An unfinished one is kept for `--resume`. */
async function openFileTarget(path: string, format: ExportFormat, isResumed: boolean): Promise<Target> {
  const draft = `${path}.partial`;
  const refuse = (error: Error): never => {
    throw new Error(`${path} cannot be written: ${error.message}`);
  };
  const written = isResumed ? await readWritten(draft, format).catch(refuse) : undefined;
  const file: FileHandle = await open(draft, isResumed ? 'r+' : 'w', 0o600).catch(refuse);
  if (written !== undefined) await file.truncate(written.length);
  let position = written?.length ?? 0;
  return {
    ...(written && { written: written.position }),
    async write(records) {
      await file.write(records, 0, records.length, position).catch(refuse);
      position += records.length;
    },
    async finish() {
      await file.sync();
      await file.close();
      await rename(draft, path).catch(refuse);
    },
    abort: () => file.close(),
  };
}

/** Reads an unfinished export. @returns its last position, and the bytes up to there */
async function readWritten(draft: string, format: ExportFormat): Promise<{ position: ExportPosition; length: number }> {
  const tracker = createRecordTracker(format);
  let length = 0;
  for await (const chunk of createReadStream(draft)) length += tracker.push(chunk).length;
  return { position: tracker.position(), length };
}

const program: Command = withServiceOptions(new Command('export'), 'read')
  .description('Exports all objects of a list as CSV or as JSON lines, in constant memory.')
  .argument('<type>', 'devices, streams, …, or the path of a list, such as groups/ID/devices')
  .argument(
    '[filter...]',
    'parameters of the list as NAME=VALUE: type=pump, fields=name,lon,lat, max=100',
    parseFilter,
    noFilters,
  )
  .addOption(
    new Option('--format <format>', 'default: csv if the name of the file ends so, else ndjson').choices([
      'csv',
      'ndjson',
    ]),
  )
  .option('--out <file>', 'file to write; it is replaced once the export is complete (default: standard output)')
  .option('--resume', 'continue an export to the same file that was interrupted')
  .action(async (type: string, filters: ReadonlyMap<string, string>, options: Options) => {
    const { out, resume } = options;
    const format = options.format ?? (out?.endsWith('.csv') ? 'csv' : 'ndjson');
    if (resume && out === undefined) program.error('export: --resume needs --out');
    const { show, stop } = createProgress(process.stderr, 'objects');
    let target: Target | undefined;
    try {
      const service = resolveService(options, process.env);
      target = out === undefined ? createOutputTarget() : await openFileTarget(out, format, resume === true);
      const { written, write } = target;
      const list = singulars.has(type) ? `${type}s` : type;
      const count = await writeExport({
        ...service,
        list,
        filters,
        format,
        write,
        showProgress: show,
        ...(written && { written }),
      }).finally(stop);
      await target.finish();
      process.stderr.write(`${count} objects exported\n`);
    } catch (error) {
      await target?.abort();
      const hint = out === undefined ? '' : `; ${out}.partial is what was received, and --resume continues it`;
      program.error(`export: ${describeFailure(error)}${target === undefined ? '' : hint}`);
    }
  });

await program.parseAsync();
