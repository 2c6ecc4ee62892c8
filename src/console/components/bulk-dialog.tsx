import { useQueryClient } from '@tanstack/react-query';
import { useEffect, useRef, useState } from 'react';
import { type Query, request, send } from '../api/client.js';
import { bodySchemaOf } from '../api/document.js';
import { describeError, RequestError } from '../api/errors.js';
import type { StatusAnswer } from '../api/interface.js';
import type { ListAnswer } from '../api/list-answer.js';
import { useSession } from '../api/queries.js';
import { formatNumber } from '../format.js';
import { countOf, type ResourceType } from '../resources.js';
import { ConfirmNumber } from './confirm-number.js';
import { Dialog } from './dialog.js';
import { announce } from './feedback.js';
import type { Values } from './form.js';
import { PreviewStep } from './preview-step.js';
import { Progress } from './progress.js';

interface BulkDialogProps {
  type: ResourceType;
  filters: Query;
  kind: 'change' | 'delete';
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

/** Changes or deletes everything that matches the filters: first the number, then, confirmed by it, the work itself. */
export function BulkDialog({ type, filters, kind, onClose }: BulkDialogProps) {
  const { document } = useSession();
  const queryClient = useQueryClient();
  const [preview, setPreview] = useState<Preview>();
  const [done, setDone] = useState<number>();
  const [error, setError] = useState<unknown>();
  const stop = useRef(new AbortController());
  const path = `/${type.plural}/`;
  const method = kind === 'change' ? 'PATCH' : 'DELETE';
  const schema = bodySchemaOf(document, 'patch', path) ?? {};
  useEffect(() => {
    stop.current = new AbortController();
    return () => stop.current.abort();
  }, []);

  async function ask(body: Values | undefined): Promise<void> {
    const response = await send(method, path, { query: filters, body, signal: stop.current.signal });
    const { details } = (await response.json()) as StatusAnswer;
    const at_s = Math.floor(Date.parse(response.headers.get('Date') ?? '') / 1000) || Math.floor(Date.now() / 1000);
    setPreview({ matched: Number(details.matched), body, at_s });
  }

  async function confirm({ body, matched, at_s }: Preview): Promise<void> {
    setError(undefined);
    setDone(0);
    try {
      const query = { ...filters, confirm: matched };
      const changed = await request<StatusAnswer>(method, path, { query, body })
        .then(({ details }) => Number(details.changed ?? matched))
        .catch((failure: unknown) => {
          if (!(failure instanceof RequestError) || failure.code !== 5031) throw failure;
          return awaitEnd(matched, at_s, failure);
        });
      announce(`${kind === 'change' ? 'Changed' : 'Deleted'} ${countOf(type, changed)}.`);
      onClose();
      await queryClient.invalidateQueries();
    } catch (failure) {
      if (stop.current.signal.aborted) return;
      setError(failure);
      setDone(undefined);
    }
  }

  /**
   * After 5 s the service answers 5031 and continues (`reference/bulk.md#concurrency`): counts what is left. @throws the
   * `failure` if nothing gets on, as with a database that is away
   */
  async function awaitEnd(matched: number, at_s: number, failure: RequestError): Promise<number> {
    const { signal } = stop.current;
    const query = { ...filters, max: 1, ...(kind === 'change' && { updated_at_to: at_s }) };
    for (let left = matched, idle_polls = 0; left > 0; ) {
      await new Promise((resolve) => setTimeout(resolve, poll_ms));
      signal.throwIfAborted();
      const { total_documents } = await request<ListAnswer<unknown>>('GET', path, { query, signal });
      idle_polls = total_documents < left ? 0 : idle_polls + 1;
      if (idle_polls > max_idle_polls) throw failure;
      left = total_documents;
      setDone(Math.max(0, matched - left));
    }
    return matched;
  }

  const title = kind === 'change' ? `Change all ${type.plural} that match` : `Delete all ${type.plural} that match`;
  const isConfirming = preview !== undefined && done === undefined;
  return (
    <Dialog title={title} onClose={onClose}>
      {preview === undefined && (
        <PreviewStep
          kind={kind}
          schema={schema}
          onPreview={(body) => (body === undefined ? ask(body).catch(setError) : ask(body))}
          onCancel={onClose}
        >
          <p>They are deleted with everything below them. The next step shows how many they are.</p>
        </PreviewStep>
      )}
      {isConfirming && (
        <ConfirmNumber
          count={preview.matched}
          label={kind === 'delete' ? 'Delete' : 'Change'}
          isDangerous={kind === 'delete'}
          onConfirm={() => void confirm(preview)}
          onCancel={onClose}
        >
          <p>
            <strong>{countOf(type, preview.matched)}</strong> {preview.matched === 1 ? 'matches' : 'match'}.
          </p>
        </ConfirmNumber>
      )}
      {preview !== undefined && done !== undefined && (
        <div className="stack">
          <Progress
            label={`${formatNumber(done)} of ${countOf(type, preview.matched)}`}
            {...(done > 0 && { value: done, max: preview.matched })}
          />
          <p className="help">The service completes this, also if you close this dialog.</p>
          <div className="actions">
            <button type="button" onClick={onClose}>
              Close
            </button>
          </div>
        </div>
      )}
      {error !== undefined && (
        <p role="alert" className="failure">
          {describeError(error)}
        </p>
      )}
    </Dialog>
  );
}
