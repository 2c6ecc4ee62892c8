import { useQueries, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { pathOf, request, send } from '../api/client.js';
import { bodySchemaOf } from '../api/document.js';
import { RequestError } from '../api/errors.js';
import { useSession } from '../api/queries.js';
import { compareLines, max_diff_lines } from '../compare.js';
import { Dialog } from '../components/dialog.js';
import { announce, Failure, Loading } from '../components/feedback.js';
import { SchemaForm, type Values } from '../components/form.js';
import { type Entry, ObjectTable } from '../components/object-table.js';
import { Panel } from '../components/page.js';
import { startDownload } from '../download.js';
import { toBase64 } from '../encode.js';

const template = '/devices/{device_id_developer}/deviceconfigs/';
const keyOf = ({ name, version }: Entry) => JSON.stringify([name, version]);

/** The configuration files of a device: upload, download, and the difference of two of them. */
export function DeviceConfigs({ id }: { id: string }) {
  const { can } = useSession();
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [isComparing, setComparing] = useState(false);
  const path = pathOf('devices', id, 'deviceconfigs');
  const pathOfKey = (key: string) => pathOf('devices', id, 'deviceconfigs', ...(JSON.parse(key) as string[]));
  return (
    <div className="stack">
      <Panel
        title="Configuration files"
        actions={
          <button type="button" disabled={selected.size !== 2} onClick={() => setComparing(true)}>
            Compare two
          </button>
        }
      >
        <ObjectTable
          caption="Configuration files"
          template={template}
          path={path}
          columns={['name', 'version', 'size', 'checksum', 'date_deployed', 'created_at']}
          sorting={{ sort: 'created_at', order: -1 }}
          keyOf={keyOf}
          selection={{ selected, onSelect: setSelected }}
          rowAction={(entry) => (
            <button
              type="button"
              onClick={() =>
                void startDownload({
                  path: pathOfKey(keyOf(entry)),
                  accept: 'application/octet-stream',
                  name: String(entry.name),
                })
              }
            >
              Download
              <span className="hidden">
                {' '}
                {String(entry.name)} {String(entry.version)}
              </span>
            </button>
          )}
          empty={<p className="muted">No file yet.</p>}
        />
      </Panel>
      {can('POST', template) && <Upload path={path} />}
      {isComparing && (
        <Comparison
          files={[...selected].map((key) => ({ label: (JSON.parse(key) as string[]).join(' '), path: pathOfKey(key) }))}
          onClose={() => setComparing(false)}
        />
      )}
    </div>
  );
}

function Upload({ path }: { path: string }) {
  const { document } = useSession();
  const queryClient = useQueryClient();
  const [file, setFile] = useState<File>();
  const [round, setRound] = useState(0);
  const schema = bodySchemaOf(document, 'post', template) ?? {};

  async function upload(values: Values): Promise<void> {
    if (file === undefined) throw new RequestError(400, 4003, 'validation error', { file: 'choose a file' });
    const body = { ...values, name: values.name ?? file.name, file: await toBase64(file) };
    await request('POST', path, { body });
    await queryClient.invalidateQueries({ queryKey: [path] });
    announce(`Stored ${String(body.name)}.`);
    setRound(round + 1);
    setFile(undefined);
  }

  return (
    <Panel title="Upload a version">
      <SchemaForm
        key={round}
        schema={schema}
        fields={['name', 'version', 'date_deployed']}
        submitLabel="Upload"
        onSubmit={upload}
      >
        <div className="field">
          <label htmlFor="config-file">
            File<span className="required"> (required)</span>
          </label>
          <input id="config-file" type="file" onChange={({ target }) => setFile(target.files?.[0])} />
        </div>
      </SchemaForm>
    </Panel>
  );
}

interface ComparisonProps {
  files: readonly { label: string; path: string }[];
  onClose(): void;
}

function Comparison({ files, onClose }: ComparisonProps) {
  const answers = useQueries({
    queries: files.map(({ path }) => ({
      queryKey: [path, 'content'],
      queryFn: async ({ signal }: { signal: AbortSignal }) => {
        const response = await send('GET', path, { headers: { Accept: 'application/octet-stream' }, signal });
        return response.text();
      },
    })),
  });
  const failed = answers.find(({ error }) => error !== null);
  const [before, after] = answers.map(({ data }) => data);
  return (
    <Dialog title={files.map(({ label }) => label).join(' and ')} onClose={onClose} isWide>
      {failed ? (
        <Failure error={failed.error} />
      ) : before === undefined || after === undefined ? (
        <Loading />
      ) : (
        <Difference before={before} after={after} />
      )}
    </Dialog>
  );
}

const marks = { same: ' ', added: '+', removed: '−' };

function Difference({ before, after }: { before: string; after: string }) {
  const lines = compareLines(before, after);
  if (lines === undefined) return <p>Files of more than {max_diff_lines} lines are not compared: download them.</p>;
  if (lines.every(({ kind }) => kind === 'same')) return <p>Both have the same text.</p>;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard
    <pre className="diff" tabIndex={0}>
      {lines.map(({ kind, text }, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: lines have no other identity
        <span key={index} className={kind}>{`${marks[kind]} ${text}\n`}</span>
      ))}
    </pre>
  );
}
