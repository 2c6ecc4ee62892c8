import { useState } from 'react';
import { pathOf, request } from '../api/client.js';
import { useApiMutation, useSession } from '../api/hooks.js';
import type { StatusAnswer } from '../api/interface.js';
import { countOf, type ResourceType, type StoredObject } from '../api/resources.js';
import type { Values } from '../forms/form.js';
import { formatNumber, labelOf } from '../lib/format.js';
import { Button } from '../ui/button.js';
import { Dialog } from '../ui/dialog.js';
import { Facts } from '../ui/page.js';
import { Progress, useCancellation } from '../ui/progress.js';
import { Table } from '../ui/table.js';
import { ConfirmForm, DeletedCounts } from './confirm.js';
import { type BulkKind, PreviewStep } from './preview-step.js';
import { runEach, type WorkProgress } from './run-each.js';

interface SelectionDialogProps {
  type: ResourceType;
  objects: readonly StoredObject[];
  kind: BulkKind;
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

/** Changes or deletes the rows that were chosen, each with the version that was shown: a preview, then one by one. */
export function SelectionDialog({ type, objects: selected, kind, onClose, onDone }: SelectionDialogProps) {
  // what is done leaves the selection
  const [objects] = useState(selected);
  const { bodyOf, can } = useSession();
  const { begin, cancel } = useCancellation();
  const [step, setStep] = useState<Step>({ name: 'form' });
  const verb = kind === 'change' ? 'Change' : 'Delete';

  /** Runs `work` for each object, under the eyes of the user. */
  async function run(label: string, work: (object: StoredObject, signal: AbortSignal) => Promise<void>) {
    const signal = begin();
    const show = (progress: WorkProgress) => setStep({ name: 'work', label, progress });
    show({ done: 0, failed: [] });
    const options = { nameOf: ({ name }: StoredObject) => name, signal, onProgress: show };
    const progress = await runEach(objects, (object) => work(object, signal), options);
    return { progress, isCancelled: signal.aborted };
  }

  async function previewDeletion(): Promise<void> {
    const below: Record<string, number> = {};
    const { isCancelled } = await run('Counting what is below', async ({ id_developer }, signal) => {
      const query = { dry_run: 1 };
      const { details } = await request<StatusAnswer>('DELETE', pathOf(type.plural, id_developer), { query, signal });
      for (const [name, count] of Object.entries(details)) below[name] = (below[name] ?? 0) + Number(count);
    });
    setStep(isCancelled ? { name: 'form' } : { name: 'preview', body: undefined, below });
  }

  /** Lets the service check the values with the first object, without changing it. */
  async function previewChange(body: Values): Promise<void> {
    const query = { id_developer: objects[0]?.id_developer };
    if (can('PATCH', type.list_path)) await request('PATCH', type.list_path, { query, body });
    setStep({ name: 'preview', body, below: {} });
  }

  const carryOut = useApiMutation({
    async run(body: Values | undefined) {
      const tried: string[] = [];
      const outcome = await run(`${verb.slice(0, -1)}ing`, async ({ id_developer, version }) => {
        const path = pathOf(type.plural, id_developer);
        tried.push(id_developer);
        // a request that was sent takes effect, so cancelling stops those that are not sent yet
        if (body === undefined) await request('DELETE', path);
        else await request('PUT', path, { body: { ...body, version } });
      });
      onDone(tried);
      return { ...outcome, isComplete: outcome.progress.failed.length === 0 && !outcome.isCancelled };
    },
    message: ({ progress, isComplete }) => (isComplete ? `${verb}d ${countOf(type, progress.done)}.` : undefined),
    onDone({ isComplete, ...outcome }) {
      if (isComplete) onClose();
      else setStep({ name: 'result', ...outcome });
    },
  });

  const title = `${verb} ${countOf(type, objects.length)}`;
  const tried = step.name === 'work' ? step.progress.done + step.progress.failed.length : 0;
  return (
    <Dialog title={title} onClose={onClose}>
      {step.name === 'form' && (
        <PreviewStep
          kind={kind}
          schema={bodyOf('PUT', type.object_path)}
          onPreview={(body) => (body === undefined ? previewDeletion() : previewChange(body))}
          onCancel={onClose}
        >
          <Names objects={objects} />
          <p>They are deleted with everything below them. The next step shows how much that is.</p>
        </PreviewStep>
      )}
      {step.name === 'work' && (
        <Progress
          label={`${step.label}: ${formatNumber(tried)} of ${formatNumber(objects.length)}`}
          value={tried}
          max={objects.length}
          onCancel={cancel}
        />
      )}
      {step.name === 'preview' && (
        <ConfirmForm
          text={String(objects.length)}
          submitLabel={title}
          isDangerous={kind === 'delete'}
          mutation={carryOut}
          onConfirm={() => carryOut.mutate(step.body)}
          onCancel={onClose}
        >
          <Names objects={objects} />
          {step.body === undefined ? <DeletedCounts counts={step.below} /> : <Assignments body={step.body} />}
        </ConfirmForm>
      )}
      {step.name === 'result' && <Result {...step} verb={verb} total={objects.length} onClose={onClose} />}
    </Dialog>
  );
}

function Names({ objects }: { objects: readonly StoredObject[] }) {
  const names = objects.slice(0, max_named).map(({ name }) => name);
  const rest = objects.length - names.length;
  return (
    <p>
      {names.join(', ')}
      {rest > 0 && ` and ${formatNumber(rest)} more`}
    </p>
  );
}

function Assignments({ body }: { body: Values }) {
  const entries = Object.entries(body);
  if (entries.length === 0) return <p className="muted">No field was filled in: only the version changes.</p>;
  const formatValue = (value: unknown) => (typeof value === 'object' ? JSON.stringify(value) : String(value));
  return (
    <Facts label="What is changed" entries={entries.map(([name, value]) => [labelOf(name), formatValue(value)])} />
  );
}

interface ResultProps {
  progress: WorkProgress;
  isCancelled: boolean;
  verb: string;
  total: number;
  onClose(): void;
}

/** Results: the rows that were changed, those that failed and why, and those left out. */
function Result({ progress: { done, failed }, isCancelled, verb, total, onClose }: ResultProps) {
  const left = total - done - failed.length;
  return (
    <div className="stack">
      <p role="status">
        {formatNumber(done)} {verb.toLowerCase()}d, {formatNumber(failed.length)} failed
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
      <div className="row">
        <Button label="Close" onClick={onClose} />
      </div>
    </div>
  );
}
