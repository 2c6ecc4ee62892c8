import { useQueryClient } from '@tanstack/react-query';
import { type SubmitEvent, useState } from 'react';
import type { Query } from '../api/client.js';
import { request } from '../api/client.js';
import { bodySchemaOf } from '../api/document.js';
import { describeError } from '../api/errors.js';
import type { StatusAnswer } from '../api/interface.js';
import { useSession } from '../api/queries.js';
import { formatNumber } from '../format.js';
import type { ResourceType } from '../resources.js';
import { Dialog } from './dialog.js';
import { announce } from './feedback.js';
import { fieldsOf, SchemaForm, type Values } from './form.js';

interface BulkDialogProps {
  type: ResourceType;
  filters: Query;
  kind: 'change' | 'delete';
  onClose(): void;
}

interface Preview {
  matched: number;
  body: Values | undefined;
}

/** Changes or deletes everything that matches the filters: first the number, then, confirmed by it, the work itself. */
export function BulkDialog({ type, filters, kind, onClose }: BulkDialogProps) {
  const { document } = useSession();
  const queryClient = useQueryClient();
  const [preview, setPreview] = useState<Preview>();
  const [typed, setTyped] = useState('');
  const [error, setError] = useState<unknown>();
  const path = `/${type.plural}/`;
  const method = kind === 'change' ? 'PATCH' : 'DELETE';
  const schema = bodySchemaOf(document, 'patch', path) ?? {};

  async function ask(body: Values | undefined): Promise<void> {
    const { details } = await request<StatusAnswer>(method, path, { query: filters, body });
    setPreview({ matched: Number(details.matched), body });
  }

  async function confirm(event: SubmitEvent): Promise<void> {
    event.preventDefault();
    if (preview === undefined || typed !== String(preview.matched)) return;
    try {
      const { body, matched } = preview;
      const query = { ...filters, confirm: matched };
      const { details } = await request<StatusAnswer>(method, path, { query, body });
      announce(`Done: ${formatNumber(Number(details.changed ?? matched))} ${type.plural}.`);
      onClose();
      await queryClient.invalidateQueries();
    } catch (failure) {
      setError(failure);
    }
  }

  const title = kind === 'change' ? `Change all ${type.plural} that match` : `Delete all ${type.plural} that match`;
  const fields = fieldsOf(schema).filter((name) => name !== 'name');
  return (
    <Dialog title={title} onClose={onClose}>
      {preview === undefined && kind === 'change' && (
        <SchemaForm
          schema={{ ...schema, required: [] }}
          fields={fields}
          submitLabel="Preview"
          onSubmit={(values) =>
            ask(Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)))
          }
          onCancel={onClose}
        />
      )}
      {preview === undefined && kind === 'delete' && (
        <div className="actions">
          <p>With everything below them. The next step shows how many.</p>
          <button type="button" className="primary" onClick={() => void ask(undefined).catch(setError)}>
            Preview
          </button>
        </div>
      )}
      {preview && (
        <form className="form" onSubmit={confirm}>
          <p>
            <strong>{formatNumber(preview.matched)}</strong> {type.plural} match.
          </p>
          <div className="field">
            <label htmlFor="bulk-number">Type the number ({preview.matched}) to confirm</label>
            <input
              id="bulk-number"
              inputMode="numeric"
              autoComplete="off"
              value={typed}
              onChange={({ target }) => setTyped(target.value)}
            />
          </div>
          <div className="actions">
            <button
              type="submit"
              className={kind === 'delete' ? 'danger' : 'primary'}
              disabled={typed !== String(preview.matched)}
            >
              {kind === 'delete' ? 'Delete' : 'Change'}
            </button>
            <button type="button" onClick={onClose}>
              Cancel
            </button>
          </div>
        </form>
      )}
      {error !== undefined && (
        <p role="alert" className="failure">
          {describeError(error)}
        </p>
      )}
    </Dialog>
  );
}
