import { useQueryClient } from '@tanstack/react-query';
import { useRef, useState } from 'react';
import { useAddress } from '../address.js';
import { send } from '../api/client.js';
import { readLines } from '../api/event-stream.js';
import { useSession } from '../api/queries.js';
import { Failure } from '../components/feedback.js';
import { SchemaField } from '../components/fields.js';
import { Page, Panel } from '../components/page.js';
import { Progress } from '../components/progress.js';
import { Table } from '../components/table.js';
import { formatNumber } from '../format.js';

const template = '/import/';
const max_shown_lines = 200;
const progress_step = 100;
const line_feed = 10;

interface LineResult {
  line: number;
  code: number;
  id_developer?: string;
  details?: unknown;
}

interface Outcome {
  isDryRun: boolean;
  lines: number;
  /** The first lines that failed. */
  failed: LineResult[];
  totals: Record<string, number> | undefined;
}

/** Imports a file: first a dry run, which shows what is wrong with each line, then the import itself. */
export function Import() {
  const { document } = useSession();
  const queryClient = useQueryClient();
  const [search, setSearch] = useAddress();
  const [file, setFile] = useState<File>();
  const [outcome, setOutcome] = useState<Outcome>();
  const [error, setError] = useState<unknown>();
  const [fileLines, setFileLines] = useState<number>();
  const running = useRef<AbortController>(undefined);
  const [isRunning, setRunning] = useState(false);
  const options = ['resource', 'on_conflict', 'account'].flatMap((name) => {
    const parameters = document.paths[template]?.post?.parameters ?? [];
    return parameters.filter((parameter) => parameter.name === name);
  });

  async function run(isDryRun: boolean): Promise<void> {
    if (file === undefined) return;
    const stop = new AbortController();
    running.current = stop;
    setRunning(true);
    setError(undefined);
    setOutcome({ isDryRun, lines: 0, failed: [], totals: undefined });
    try {
      const query = { ...search, ...(isDryRun && { dry_run: '1' }) };
      await importFile(file, query, stop.signal, (progress) => setOutcome({ ...progress, isDryRun }));
    } catch (failure) {
      if (!stop.signal.aborted) setError(failure);
    } finally {
      setRunning(false);
      if (!isDryRun) await queryClient.invalidateQueries();
    }
  }

  const isTried = outcome?.isDryRun === true && outcome.totals !== undefined;
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
                onChange={({ target }) => {
                  const chosen = target.files?.[0];
                  setFile(chosen);
                  setOutcome(undefined);
                  setFileLines(undefined);
                  if (chosen) void countLines(chosen).then(setFileLines);
                }}
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
              <button type="button" className="primary" disabled={!file || isRunning} onClick={() => void run(true)}>
                Try
              </button>
              <button type="button" disabled={!isTried || isRunning} onClick={() => void run(false)}>
                Import
              </button>
            </div>
            {isRunning && (
              <Progress
                label={`${formatNumber(outcome?.lines ?? 0)} of ${fileLines === undefined ? '…' : formatNumber(fileLines)} lines`}
                {...(outcome &&
                  outcome.lines > 0 &&
                  fileLines !== undefined && { value: outcome.lines, max: fileLines })}
                onCancel={() => running.current?.abort()}
              />
            )}
          </div>
        </Panel>
        {error !== undefined && <Failure error={error} />}
        {outcome && <Result outcome={outcome} isRunning={isRunning} />}
      </div>
    </Page>
  );
}

/** Sends the file, and reads the outcome of each line while it arrives. */
async function importFile(
  file: File,
  query: Record<string, string>,
  signal: AbortSignal,
  onProgress: (outcome: Omit<Outcome, 'isDryRun'>) => void,
): Promise<void> {
  const type = /\.csv$/i.test(file.name) ? 'text/csv' : 'application/x-ndjson';
  const { body } = await send('POST', template, { query, body: file, signal, headers: { 'Content-Type': type } });
  const outcome: Omit<Outcome, 'isDryRun'> = { lines: 0, failed: [], totals: undefined };
  if (body === null) return;
  for await (const text of readLines(body, signal)) {
    if (text === '') continue;
    const entry = JSON.parse(text) as LineResult | { totals: Record<string, number> };
    if ('totals' in entry) outcome.totals = entry.totals;
    else {
      outcome.lines++;
      if (entry.code >= 4000 && outcome.failed.length < max_shown_lines) outcome.failed.push(entry);
    }
    if ('totals' in entry || outcome.lines % progress_step === 0) onProgress({ ...outcome });
  }
}

/** Counts the line breaks of a file piece by piece: about the number of lines that will be answered. */
async function countLines(file: Blob): Promise<number> {
  let count = 0;
  const reader = file.stream().getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read())
    for (let at = part.value.indexOf(line_feed); at >= 0; at = part.value.indexOf(line_feed, at + 1)) count++;
  return count;
}

function Result({ outcome, isRunning }: { outcome: Outcome; isRunning: boolean }) {
  const { isDryRun, lines, failed, totals } = outcome;
  return (
    <Panel title={isDryRun ? 'What would happen' : 'What has happened'}>
      <p role="status">{formatNumber(lines)} lines</p>
      {!isRunning && totals === undefined && !isDryRun && (
        <p>
          It ended early. What was carried out stays; import the file again to go on, existing objects are skipped then.
        </p>
      )}
      {totals && (
        <dl className="fields">
          {Object.entries(totals).map(([name, count]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{formatNumber(count)}</dd>
            </div>
          ))}
        </dl>
      )}
      {failed.length > 0 && (
        <Table
          caption="Lines that failed"
          entries={failed}
          keyOf={({ line }: LineResult) => String(line)}
          columns={[
            { field: 'line', render: ({ line }: LineResult) => line },
            { field: 'code', render: ({ code }: LineResult) => code },
            { field: 'details', render: ({ details }: LineResult) => <code>{JSON.stringify(details)}</code> },
          ]}
        />
      )}
    </Panel>
  );
}
