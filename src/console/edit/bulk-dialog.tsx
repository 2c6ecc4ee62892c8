import { useState } from 'react';
import { type Query, request, send } from '../api/client.js';
import { RequestError } from '../api/errors.js';
import { useApiMutation, useList, useModels, useSession } from '../api/hooks.js';
import type { StatusAnswer } from '../api/interface.js';
import { countOf, type ListAnswer, type ResourceType, type StoredObject } from '../api/resources.js';
import type { Values } from '../forms/form.js';
import { formatNumber } from '../lib/format.js';
import { wait } from '../lib/wait.js';
import { Button } from '../ui/button.js';
import { Dialog } from '../ui/dialog.js';
import { Progress, useCancellation } from '../ui/progress.js';
import { Table } from '../ui/table.js';
import { Value } from '../ui/value.js';
import { ConfirmForm } from './confirm.js';
import { type BulkKind, PreviewStep } from './preview-step.js';

interface BulkDialogProps {
  type: ResourceType;
  filters: Query;
  kind: BulkKind;
  onClose(): void;
}

interface Preview {
  matched: number;
  body: Values | undefined;
  /** Time of the service: what was updated later is done. */
  at_s: number;
}

const poll_ms = 1000;
const max_idle_polls = 60;
const max_rows = 5;

/** Changes or deletes everything that matches the filters: first the number, then, confirmed by it, the work itself. */
export function BulkDialog({ type, filters, kind, onClose }: BulkDialogProps) {
  const [preview, setPreview] = useState<Preview>();
  const [done, setDone] = useState(0);
  const { bodyOf } = useSession();
  const { begin } = useCancellation();
  const path = type.list_path;
  const method = kind === 'change' ? 'PATCH' : 'DELETE';

  async function ask(body: Values | undefined): Promise<void> {
    const response = await send(method, path, { query: filters, body, signal: begin() });
    const { details } = (await response.json()) as StatusAnswer;
    const at_s = Math.floor(Date.parse(response.headers.get('Date') ?? '') / 1000) || Math.floor(Date.now() / 1000);
    setPreview({ matched: Number(details.matched), body, at_s });
  }

  const carryOut = useApiMutation({
    async run(confirmed: Preview): Promise<number> {
      const { body, matched } = confirmed;
      setDone(0);
      try {
        const query = { ...filters, confirm: matched };
        const { details } = await request<StatusAnswer>(method, path, { query, body });
        return Number(details.changed ?? matched);
      } catch (failure) {
        if (!(failure instanceof RequestError)) throw failure;
        if (failure.code === 5031) return awaitEnd(confirmed, failure);
        // another number can be confirmed
        if (failure.code === 4005) setPreview({ ...confirmed, matched: Number(failure.details.matched) });
        throw failure;
      }
    },
    message: (count) => `${kind === 'change' ? 'Changed' : 'Deleted'} ${countOf(type, count)}.`,
    onDone: onClose,
  });

  /**
   * After 5 s the service answers 5031 and continues (`reference/bulk.md#concurrency`): counts what is left. @throws the
   * `failure` if nothing gets on, as with a database that is away
   */
  async function awaitEnd({ matched, at_s }: Preview, failure: RequestError): Promise<number> {
    const signal = begin();
    const query = { ...filters, max: 1, ...(kind === 'change' && { updated_at_to: at_s }) };
    for (let left = matched, idle_polls = 0; left > 0; ) {
      await wait(poll_ms, signal);
      signal.throwIfAborted();
      const { total_documents } = await request<ListAnswer<unknown>>('GET', path, { query, signal });
      idle_polls = total_documents < left ? 0 : idle_polls + 1;
      if (idle_polls > max_idle_polls) throw failure;
      left = total_documents;
      setDone(Math.max(0, matched - left));
    }
    return matched;
  }

  return (
    <Dialog title={`${kind === 'change' ? 'Change' : 'Delete'} all ${type.noun}s that match`} onClose={onClose}>
      {preview === undefined ? (
        <PreviewStep kind={kind} schema={bodyOf('PATCH', path)} onPreview={ask} onCancel={onClose}>
          <p>They are deleted with everything below them. The next step shows how many they are.</p>
        </PreviewStep>
      ) : carryOut.isPending ? (
        <div className="stack">
          <Progress
            label={`${formatNumber(done)} of ${countOf(type, preview.matched)}`}
            value={done}
            max={preview.matched}
          />
          <p className="help">The service completes this, also if you close this dialog.</p>
          <div className="row">
            <Button label="Close" onClick={onClose} />
          </div>
        </div>
      ) : (
        <ConfirmForm
          text={String(preview.matched)}
          submitLabel={kind === 'delete' ? 'Delete' : 'Change'}
          isDangerous={kind === 'delete'}
          mutation={carryOut}
          onConfirm={() => carryOut.mutate(preview)}
          onCancel={onClose}
        >
          <p>
            <strong>{countOf(type, preview.matched)}</strong> {preview.matched === 1 ? 'matches' : 'match'}.
          </p>
          <FirstRows type={type} filters={filters} body={preview.body} />
        </ConfirmForm>
      )}
    </Dialog>
  );
}

/** The first of the objects that match, with what each field is and becomes. */
export function FirstRows({ type, filters, body = {} }: Pick<BulkDialogProps, 'type' | 'filters'> & { body?: Values }) {
  const { entryOf } = useSession();
  const changed = Object.keys(body);
  const { properties = {} } = entryOf(type.list_path);
  const fields = ['id_developer', 'name', ...(properties.id_model ? ['id_model'] : []), ...changed];
  const query = { ...filters, max: max_rows, fields: fields.join(',') };
  const { data } = useList<StoredObject>(type.list_path, query, { isStatic: true });
  const models = useModels({ enabled: 'properties' in body && properties.id_model !== undefined });
  if (data === undefined) return null;
  /** Value of a field afterwards: a device keeps the properties of its model. */
  const valueAfter = (field: string, { id_model }: StoredObject) => {
    const model = models.data?.result.find(({ id_developer }) => id_developer === id_model);
    return field === 'properties' && model ? { ...(model.properties ?? {}), ...(body[field] ?? {}) } : body[field];
  };
  return (
    <Table
      caption={data.total_documents > max_rows ? `The first ${max_rows}` : 'All of them'}
      entries={data.result}
      columns={[
        { field: 'name', render: ({ name }) => name },
        ...changed.map((field) => ({
          field,
          render: (object: StoredObject) => (
            <>
              <Value field={field} value={object[field]} schema={properties[field]} /> →{' '}
              <Value field={field} value={valueAfter(field, object)} schema={properties[field]} />
            </>
          ),
        })),
      ]}
    />
  );
}
