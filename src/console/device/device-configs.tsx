import { useQueries } from '@tanstack/react-query';
import { useReducer, useState } from 'react';
import { pathOf, request, send } from '../api/client.js';
import { RequestError } from '../api/errors.js';
import { useAction, useApiMutation, useSession } from '../api/hooks.js';
import type { Entry } from '../api/resources.js';
import { SchemaForm, type Values } from '../forms/form.js';
import { compareLines, max_diff_lines } from '../lib/compare.js';
import { toBase64 } from '../lib/encode.js';
import { ObjectTable } from '../lists/object-table.js';
import { Button, LinkButton } from '../ui/button.js';
import { Dialog } from '../ui/dialog.js';
import { startDownload } from '../ui/download.js';
import { Failure, Loading, Panel } from '../ui/page.js';
import { config_counts_path } from './config-rows.js';
import { FileField } from './give-file.js';

const template = '/devices/{device_id_developer}/deviceconfigs/';
const binary = 'application/octet-stream';
const keyOf = ({ name, version }: Entry) => JSON.stringify([name, version]);
const segmentsOf = (key: string) => JSON.parse(key) as string[];

/** The configuration files of a device: upload, download, and the difference of two of them. */
export function DeviceConfigs({ id }: { id: string }) {
  const { can } = useSession();
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [isComparing, setComparing] = useState(false);
  const path = pathOf('devices', id, 'deviceconfigs');
  const pathOfKey = (key: string) => pathOf('devices', id, 'deviceconfigs', ...segmentsOf(key));
  const deliver = useAction(
    ({ name, version, desired }: Entry) => {
      const body = { version: desired === true ? null : version };
      return request('PUT', pathOf('devices', id, 'deviceconfigs', String(name), 'desired'), { body });
    },
    (_answer, { name, version, desired }) =>
      desired === true ? `${name} is not desired any more.` : `The device shall have version ${version} of ${name}.`,
  );
  return (
    <div className="stack">
      <Panel
        title="Configuration files"
        actions={<Button label="Compare two" disabled={selected.size !== 2} onClick={() => setComparing(true)} />}
      >
        <ObjectTable
          caption="Configuration files"
          template={template}
          path={path}
          columns={['name', 'version', 'size', 'checksum', 'desired', 'date_deployed', 'created_at']}
          sorting={{ sort: 'created_at', order: '-1' }}
          keyOf={keyOf}
          selection={{ selected, onSelect: setSelected }}
          rowAction={(entry) => {
            const file = { path: pathOfKey(keyOf(entry)), accept: binary, name: String(entry.name) };
            const of = `${entry.name} ${entry.version}`;
            return (
              <span className="row">
                <Button label="Download" of={of} onClick={() => startDownload(file)} />
                {can('GET', config_counts_path) && (
                  <LinkButton
                    to="/configs"
                    search={{ config: String(entry.name) }}
                    label="Fleet"
                    of={String(entry.name)}
                  />
                )}
                {can('PUT', `${template}{file_name}/desired/`) && (
                  <Button
                    label={entry.desired === true ? 'Take back' : 'Make desired'}
                    of={of}
                    onClick={() => deliver(entry)}
                  />
                )}
              </span>
            );
          }}
          empty="No file yet."
        />
      </Panel>
      {can('POST', template) && <Upload path={path} />}
      {isComparing && (
        <Comparison
          files={[...selected].map((key) => ({ label: segmentsOf(key).join(' '), path: pathOfKey(key) }))}
          onClose={() => setComparing(false)}
        />
      )}
    </div>
  );
}

function Upload({ path }: { path: string }) {
  const [file, setFile] = useState<File>();
  const [round, startOver] = useReducer((count: number) => count + 1, 0);
  const upload = useApiMutation({
    async run(values: Values) {
      if (file === undefined) throw new RequestError(400, 4003, 'validation error', { file: 'choose a file' });
      const name = String(values.name ?? file.name);
      await request('POST', path, { body: { ...values, name, file: await toBase64(file) } });
      return name;
    },
    message: (name) => `Stored ${name}.`,
    onDone() {
      startOver();
      setFile(undefined);
    },
  });
  return (
    <Panel title="Upload a version">
      <SchemaForm
        key={round}
        schema={useSession().bodyOf('POST', template)}
        fields={['name', 'version', 'date_deployed']}
        submitLabel="Upload"
        mutation={upload}
      >
        {() => <FileField id="config-file" onChoose={setFile} />}
      </SchemaForm>
    </Panel>
  );
}

/** Shows what the later one of two files has changed, whatever the order in which they were chosen. */
function Comparison({ files, onClose }: { files: readonly { label: string; path: string }[]; onClose(): void }) {
  const answers = useQueries({
    queries: files.map(({ label, path }) => ({
      queryKey: [path, 'content'],
      queryFn: async ({ signal }: { signal: AbortSignal }) => {
        const [{ created_at }, content] = await Promise.all([
          request<{ created_at: number }>('GET', path, { signal }),
          send('GET', path, { headers: { Accept: binary }, signal }).then((response) => response.text()),
        ]);
        return { label, created_at, content };
      },
    })),
  });
  const read = answers.flatMap(({ data = [] }) => data);
  const [before, after] = read.toSorted((left, right) => left.created_at - right.created_at);
  const title = before && after ? `${before.label} → ${after.label}` : files.map(({ label }) => label).join(' and ');
  return (
    <Dialog title={title} onClose={onClose} isWide>
      {before !== undefined && after !== undefined ? (
        <Difference before={before.content} after={after.content} />
      ) : answers.some(({ error }) => error) ? (
        <Failure error={answers.find(({ error }) => error)?.error} />
      ) : (
        <Loading />
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
    <pre className="card diff" tabIndex={0}>
      {lines.map(({ kind, text }, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: lines have no other identity
        <span key={index} className={kind}>{`${marks[kind]} ${text}\n`}</span>
      ))}
    </pre>
  );
}
