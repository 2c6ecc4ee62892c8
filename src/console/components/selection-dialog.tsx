import { useQueryClient } from '@tanstack/react-query';
import { useEffect, useRef, useState } from 'react';
import { pathOf, request } from '../api/client.js';
import { bodySchemaOf } from '../api/document.js';
import type { StatusAnswer } from '../api/interface.js';
import { useSession } from '../api/queries.js';
import { runEach, type WorkProgress } from '../api/run-each.js';
import { formatNumber, labelOf } from '../format.js';
import { countOf, type ResourceType, type StoredObject, templateOf } from '../resources.js';
import { ConfirmNumber } from './confirm-number.js';
import { Counted } from './counted.js';
import { Dialog } from './dialog.js';
import { announce } from './feedback.js';
import type { Values } from './form.js';
import { PreviewStep } from './preview-step.js';
import { Progress } from './progress.js';
import { Table } from './table.js';

interface SelectionDialogProps {
  type: ResourceType;
  objects: readonly StoredObject[];
  kind: 'change' | 'delete';
  onClose(): void;
  /** Called when the work has ended, with the identifiers of what was tried. */
  onDone(ids: readonly string[]): void;
}

type Step =
  | { name: 'form' }
  | { name: 'work'; label: string; progress: WorkProgress }
  | { name: 'preview'; body: Values | undefined; below: Readonly<Record<string, number>> }
  | { name: 'result'; progress: WorkProgress; isCancelled: boolean };

const max_named = 10;
const nothingYet: WorkProgress = { done: 0, failed: [] };

/** Changes or deletes the rows that were chosen, each with the version that was shown: a preview, then one by one. */
export function SelectionDialog({ type, objects: selected, kind, onClose, onDone }: SelectionDialogProps) {
  // what is done leaves the selection
  const [objects] = useState(selected);
  const { document, can } = useSession();
  const queryClient = useQueryClient();
  const stop = useRef(new AbortController());
  const [step, setStep] = useState<Step>({ name: 'form' });
  const schema = bodySchemaOf(document, 'put', templateOf(type)) ?? {};
  useEffect(() => () => stop.current.abort(), []);

  /** Runs `work` for each object, under the eyes of the user. */
  async function run(label: string, work: (object: StoredObject) => Promise<void>): Promise<WorkProgress> {
    stop.current = new AbortController();
    const show = (progress: WorkProgress) => setStep({ name: 'work', label, progress });
    show(nothingYet);
    return runEach(objects, work, { nameOf: ({ name }) => name, signal: stop.current.signal, onProgress: show });
  }

  /** Counts what is below the objects. */
  async function previewDeletion(): Promise<void> {
    const below: Record<string, number> = {};
    await run('Counting what is below', async ({ id_developer }) => {
      const query = { dry_run: 1 };
      const { signal } = stop.current;
      const { details } = await request<StatusAnswer>('DELETE', pathOf(type.plural, id_developer), { query, signal });
      for (const [name, count] of Object.entries(details)) below[name] = (below[name] ?? 0) + Number(count);
    });
    if (stop.current.signal.aborted) setStep({ name: 'form' });
    else setStep({ name: 'preview', body: undefined, below });
  }

  /** Lets the service check the values with the first object, without changing it. */
  async function previewChange(body: Values): Promise<void> {
    const query = { id_developer: objects[0]?.id_developer };
    if (can('PATCH', `/${type.plural}/`)) await request('PATCH', `/${type.plural}/`, { query, body });
    setStep({ name: 'preview', body, below: {} });
  }

  async function carryOut(body: Values | undefined): Promise<void> {
    const tried: string[] = [];
    const progress = await run(kind === 'change' ? 'Changing' : 'Deleting', async ({ id_developer, version }) => {
      const path = pathOf(type.plural, id_developer);
      tried.push(id_developer);
      // a request that was sent takes effect, so cancelling stops those that are not sent yet
      if (body === undefined) await request('DELETE', path);
      else await request('PUT', path, { body: { ...body, version } });
    });
    onDone(tried);
    await queryClient.invalidateQueries();
    const isCancelled = stop.current.signal.aborted;
    if (progress.failed.length > 0 || isCancelled) return setStep({ name: 'result', progress, isCancelled });
    announce(`${kind === 'change' ? 'Changed' : 'Deleted'} ${countOf(type, progress.done)}.`);
    onClose();
  }

  const count = countOf(type, objects.length);
  return (
    <Dialog title={`${kind === 'change' ? 'Change' : 'Delete'} ${count}`} onClose={onClose}>
      {step.name === 'form' && (
        <PreviewStep
          kind={kind}
          schema={schema}
          onPreview={(body) => (body === undefined ? previewDeletion() : previewChange(body))}
          onCancel={onClose}
        >
          <Names objects={objects} />
          <p>They are deleted with everything below them. The next step shows how much that is.</p>
        </PreviewStep>
      )}
      {step.name === 'work' && (
        <Progress
          label={`${step.label}: ${formatNumber(step.progress.done + step.progress.failed.length)} of ${formatNumber(objects.length)}`}
          value={step.progress.done + step.progress.failed.length}
          max={objects.length}
          onCancel={() => stop.current.abort()}
        />
      )}
      {step.name === 'preview' && (
        <ConfirmNumber
          count={objects.length}
          label={kind === 'change' ? `Change ${count}` : `Delete ${count}`}
          isDangerous={kind === 'delete'}
          onConfirm={() => void carryOut(step.body)}
          onCancel={onClose}
        >
          <Names objects={objects} />
          {step.body !== undefined && <Assignments body={step.body} />}
          {kind === 'delete' && <Counted counts={step.below} label="What is deleted" />}
        </ConfirmNumber>
      )}
      {step.name === 'result' && <Result {...step} kind={kind} total={objects.length} onClose={onClose} />}
    </Dialog>
  );
}

function Names({ objects }: { objects: readonly StoredObject[] }) {
  const rest = objects.length - max_named;
  return (
    <p>
      {objects
        .slice(0, max_named)
        .map(({ name }) => name)
        .join(', ')}
      {rest > 0 && ` and ${formatNumber(rest)} more`}
    </p>
  );
}

/** The values that all objects get. */
function Assignments({ body }: { body: Values }) {
  const entries = Object.entries(body);
  if (entries.length === 0) return <p className="muted">No field was filled in: only the version changes.</p>;
  return (
    <dl className="fields" aria-label="What is changed">
      {entries.map(([name, value]) => (
        <div key={name}>
          <dt>{labelOf(name)}</dt>
          <dd>{typeof value === 'object' ? JSON.stringify(value) : String(value)}</dd>
        </div>
      ))}
    </dl>
  );
}

interface ResultProps {
  progress: WorkProgress;
  isCancelled: boolean;
  kind: 'change' | 'delete';
  total: number;
  onClose(): void;
}

/** Results: the rows that were changed, those that failed and why, and those left out. */
function Result({ progress: { done, failed }, isCancelled, kind, total, onClose }: ResultProps) {
  const left = total - done - failed.length;
  return (
    <div className="stack">
      <p role="status">
        {formatNumber(done)} {kind === 'change' ? 'changed' : 'deleted'}, {formatNumber(failed.length)} failed
        {isCancelled && `, ${formatNumber(left)} left as they are because you cancelled`}.
      </p>
      {failed.length > 0 && (
        <Table
          caption="What failed"
          entries={failed}
          keyOf={({ name, reason }) => `${name} ${reason}`}
          columns={[
            { field: 'name', render: ({ name }) => name },
            { field: 'reason', render: ({ reason }) => reason },
          ]}
        />
      )}
      <div className="actions">
        <button type="button" onClick={onClose}>
          Close
        </button>
      </div>
    </div>
  );
}
