import { useQueryClient } from '@tanstack/react-query';
import { useRef, useState } from 'react';
import { useAddress } from '../address.js';
import {
  type ImportFile,
  type ImportProgress,
  importPieces,
  type LineResult,
  openImportFile,
} from '../api/import-file.js';
import { useSession } from '../api/queries.js';
import { Failure } from '../components/feedback.js';
import { SchemaField } from '../components/fields.js';
import { Page, Panel } from '../components/page.js';
import { Progress } from '../components/progress.js';
import { Table } from '../components/table.js';
import { formatNumber, labelOf } from '../format.js';

const template = '/import/';

interface Outcome extends ImportProgress {
  isDryRun: boolean;
  isComplete: boolean;
}

/** Imports a file: first a dry run, which shows what is wrong with each line, then the import itself. */
export function Import() {
  const { document } = useSession();
  const queryClient = useQueryClient();
  const [search, setSearch] = useAddress();
  const [source, setSource] = useState<ImportFile>();
  const [outcome, setOutcome] = useState<Outcome>();
  const [error, setError] = useState<unknown>();
  const running = useRef<AbortController>(undefined);
  const [isRunning, setRunning] = useState(false);
  const options = ['resource', 'on_conflict', 'account'].flatMap((name) => {
    const parameters = document.paths[template]?.post?.parameters ?? [];
    return parameters.filter((parameter) => parameter.name === name);
  });

  async function choose(file: File | undefined): Promise<void> {
    setSource(undefined);
    setOutcome(undefined);
    setError(undefined);
    if (file !== undefined) await openImportFile(file).then(setSource, setError);
  }

  async function run(chosen: ImportFile, isDryRun: boolean): Promise<void> {
    const stop = new AbortController();
    const { signal } = stop;
    running.current = stop;
    let progress: ImportProgress = { lines: 0, failed: [], totals: {} };
    const show = (isComplete: boolean) => setOutcome({ ...progress, isDryRun, isComplete });
    setRunning(true);
    setError(undefined);
    show(false);
    try {
      // a dry run does not know what earlier pieces would have created
      await importPieces(chosen, isDryRun ? 1 : chosen.pieces.length, {
        query: { ...search, ...(isDryRun && { dry_run: '1' }) },
        signal,
        onProgress(reported) {
          progress = reported;
          show(false);
        },
      });
      show(true);
    } catch (failure) {
      if (!signal.aborted) setError(failure);
    } finally {
      setRunning(false);
      if (!isDryRun) await queryClient.invalidateQueries();
    }
  }

  const isTried = outcome?.isDryRun === true && outcome.isComplete;
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
                disabled={isRunning}
                onChange={({ target }) => void choose(target.files?.[0])}
              />
            </div>
            {options.map(({ name, schema, description }) => (
              <SchemaField
                key={name}
                name={name}
                schema={{ ...schema, ...(description !== undefined && { description }) }}
                value={search[name]}
                onChange={(value) => {
                  setOutcome(undefined);
                  setSearch({ [name]: value === undefined ? undefined : String(value) }, { replace: true });
                }}
              />
            ))}
            <div className="actions">
              <button
                type="button"
                className="primary"
                disabled={!source || isRunning}
                onClick={() => source && void run(source, true)}
              >
                Try
              </button>
              <button type="button" disabled={!isTried || isRunning} onClick={() => source && void run(source, false)}>
                Import
              </button>
            </div>
            {isRunning && source && outcome && (
              <LinesProgress source={source} outcome={outcome} onCancel={() => running.current?.abort()} />
            )}
          </div>
        </Panel>
        {error !== undefined && <Failure error={error} />}
        {outcome && source && <Result source={source} outcome={outcome} isRunning={isRunning} />}
      </div>
    </Page>
  );
}

/** The lines that will be answered: without the header, in a dry run those of the first piece. */
function countAnswers({ lines, header_lines, pieces }: ImportFile, isDryRun: boolean): number {
  return (isDryRun ? (pieces[1]?.lines_before ?? lines) : lines) - header_lines;
}

interface LinesProgressProps {
  source: ImportFile;
  outcome: Outcome;
  onCancel(): void;
}

function LinesProgress({ source, outcome: { lines, isDryRun }, onCancel }: LinesProgressProps) {
  const count = countAnswers(source, isDryRun);
  return (
    <Progress
      label={`${formatNumber(lines)} of ${formatNumber(count)} lines`}
      {...(lines > 0 && { value: lines, max: count })}
      onCancel={onCancel}
    />
  );
}

interface ResultProps {
  source: ImportFile;
  outcome: Outcome;
  isRunning: boolean;
}

function Result({ source, outcome, isRunning }: ResultProps) {
  const { isDryRun, isComplete, lines, failed, totals } = outcome;
  const left = source.lines - source.header_lines - countAnswers(source, true);
  return (
    <Panel title={isDryRun ? 'What would happen' : 'What has happened'}>
      <div className="stack">
        <p role="status">{formatNumber(lines)} lines</p>
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
        <dl className="fields">
          {Object.entries(totals).map(([name, count]) => (
            <div key={name}>
              <dt>{labelOf(name)}</dt>
              <dd>{formatNumber(count)}</dd>
            </div>
          ))}
        </dl>
        {failed.length > 0 && (
          <Table
            caption="Lines that failed"
            entries={failed}
            keyOf={({ line }: LineResult) => String(line)}
            columns={[
              { field: 'line', render: ({ line }: LineResult) => formatNumber(line) },
              { field: 'code', render: ({ code }: LineResult) => code },
              { field: 'details', render: ({ details }: LineResult) => <code>{JSON.stringify(details)}</code> },
            ]}
          />
        )}
      </div>
    </Panel>
  );
}
