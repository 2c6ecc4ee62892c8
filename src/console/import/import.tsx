import { useMutation } from '@tanstack/react-query';
import { useState } from 'react';
import { useApiMutation, useSession } from '../api/hooks.js';
import { findTypeByName } from '../api/resources.js';
import { SchemaField } from '../forms/fields.js';
import { formatNumber, labelOf } from '../lib/format.js';
import { useAddress } from '../ui/address.js';
import { Button } from '../ui/button.js';
import { saveFile } from '../ui/download.js';
import { Facts, Failure, Page, Panel } from '../ui/page.js';
import { Progress, useCancellation } from '../ui/progress.js';
import { Table } from '../ui/table.js';
import { pickRecords } from './file-pieces.js';
import { type ImportFile, type ImportProgress, importPieces, openImportFile } from './import-file.js';
import { recognizeType } from './recognize.js';

const template = '/import/';
const options = ['resource', 'on_conflict', 'account'];

interface Outcome extends ImportProgress {
  isDryRun: boolean;
  isComplete: boolean;
}

/** Imports a file: first a dry run, which shows what is wrong with each line, then the import itself. */
export function Import() {
  const { parameterOf, bodyOf, entryOf } = useSession();
  const [search, setSearch] = useAddress();
  const [source, setSource] = useState<ImportFile>();
  const [outcome, setOutcome] = useState<Outcome>();
  const { begin, cancel } = useCancellation();

  const opening = useMutation({
    mutationFn: openImportFile,
    onSuccess(opened) {
      setSource(opened);
      const resource = recognize(opened);
      if (resource !== undefined) setSearch({ resource }, { replace: true });
    },
  });
  /** Recognizes the type of the lines; undefined if each names its own, or none fits. */
  function recognize({ columns }: ImportFile): string | undefined {
    if (columns.includes('resource')) return undefined;
    const names = parameterOf(template, 'resource', 'POST')?.schema.enum ?? [];
    const candidates = names.flatMap((name) => {
      const { list_path } = findTypeByName(name) ?? {};
      if (list_path === undefined) return [];
      return [{ name: String(name), body: bodyOf('POST', list_path), entry: entryOf(list_path) }];
    });
    return recognizeType(columns, candidates);
  }

  const running = useApiMutation({
    async run({ file, isDryRun }: { file: ImportFile; isDryRun: boolean }) {
      const signal = begin();
      let progress: ImportProgress = { lines: 0, failed: [], failed_lines: new Set(), totals: {} };
      const show = (isComplete: boolean) => setOutcome({ ...progress, isDryRun, isComplete });
      show(false);
      try {
        // a dry run does not know what earlier pieces would have created
        await importPieces(file, isDryRun ? 1 : file.pieces.length, {
          query: { ...search, ...(isDryRun && { dry_run: '1' }) },
          signal,
          onProgress(reported) {
            progress = reported;
            show(false);
          },
        });
        show(true);
      } catch (failure) {
        if (!signal.aborted) throw failure;
      }
    },
  });

  function choose(file: File | undefined): void {
    setSource(undefined);
    setOutcome(undefined);
    running.reset();
    opening.reset();
    if (file !== undefined) opening.mutate(file);
  }

  const start = (isDryRun: boolean) => source && running.mutate({ file: source, isDryRun });
  const isTried = outcome?.isDryRun === true && outcome.isComplete;
  const count = source && outcome ? countAnswers(source, outcome.isDryRun) : 0;
  return (
    <Page title="Import">
      <div className="stack">
        <Panel title="File">
          <div className="form">
            <div className="field">
              <label htmlFor="import-file">CSV or NDJSON</label>
              <input
                id="import-file"
                type="file"
                accept=".csv,.ndjson,.jsonl,text/csv,application/x-ndjson"
                disabled={running.isPending}
                onChange={({ target }) => choose(target.files?.[0])}
              />
            </div>
            {source && <p role="status">{describeColumns(source, recognize(source))}</p>}
            {options.map((name) => {
              const { schema, description = '' } = parameterOf(template, name, 'POST') ?? {};
              return (
                <SchemaField
                  key={name}
                  name={name}
                  schema={{ ...schema, description }}
                  value={search[name]}
                  onChange={(value) => {
                    setOutcome(undefined);
                    setSearch({ [name]: value === undefined ? undefined : String(value) }, { replace: true });
                  }}
                />
              );
            })}
            <div className="row">
              <Button label="Try" kind="primary" disabled={!source || running.isPending} onClick={() => start(true)} />
              <Button label="Import" disabled={!isTried || running.isPending} onClick={() => start(false)} />
            </div>
            {running.isPending && outcome && (
              <Progress
                label={`${formatNumber(outcome.lines)} of ${formatNumber(count)} lines`}
                value={outcome.lines}
                max={count}
                onCancel={cancel}
              />
            )}
          </div>
        </Panel>
        <Failure error={opening.error ?? running.error} />
        {outcome && source && <Result source={source} outcome={outcome} isRunning={running.isPending} />}
      </div>
    </Page>
  );
}

function describeColumns({ columns }: ImportFile, recognized: string | undefined): string {
  if (columns.includes('resource')) return 'Each line names its type.';
  if (recognized === undefined) return 'The columns are those of no type: choose one, if the lines name none.';
  return `The columns are those of ${findTypeByName(recognized)?.title.toLowerCase()}. Choose another type if they are not.`;
}

/** The lines that will be answered: without the header, in a dry run those of the first piece. */
function countAnswers({ lines, header_lines, pieces }: ImportFile, isDryRun: boolean): number {
  return (isDryRun ? (pieces[1]?.lines_before ?? lines) : lines) - header_lines;
}

interface ResultProps {
  source: ImportFile;
  outcome: Outcome;
  isRunning: boolean;
}

function Result({ source, outcome, isRunning }: ResultProps) {
  const { isDryRun, isComplete, lines, failed, failed_lines, totals } = outcome;
  const { file, isCsv } = source;
  const left = source.lines - source.header_lines - countAnswers(source, true);
  return (
    <Panel title={isDryRun ? 'What would happen' : 'What has happened'}>
      <div className="stack">
        <p role="status">
          {formatNumber(lines)} {lines === 1 ? 'line' : 'lines'}
        </p>
        {isDryRun && isComplete && left > 0 && (
          <p>
            The other {formatNumber(left)} lines are tried when they are imported;{' '}
            <code>npm run import -- --dry-run</code> tries all.
          </p>
        )}
        {!isRunning && !isComplete && !isDryRun && (
          <p>
            It ended early. What was carried out stays; import the file again to go on: what exists is skipped then.
          </p>
        )}
        <Facts entries={Object.entries(totals).map(([name, count]) => [labelOf(name), formatNumber(count)])} />
        {failed.length > 0 && !isRunning && (
          <div className="row">
            <Button
              label={`Download the ${formatNumber(failed_lines.size)} ${failed_lines.size === 1 ? 'line' : 'lines'} that failed`}
              onClick={async () => saveFile(await pickRecords(file, isCsv, failed_lines), `failed-${file.name}`)}
            />
          </div>
        )}
        {failed.length > 0 && (
          <Table
            caption="Lines that failed"
            entries={failed}
            keyOf={({ line }) => String(line)}
            columns={[
              { field: 'line', render: ({ line }) => formatNumber(line) },
              { field: 'code', render: ({ code }) => code },
              { field: 'details', render: ({ details }) => <code>{JSON.stringify(details)}</code> },
            ]}
          />
        )}
      </div>
    </Panel>
  );
}
