import { useQuery, useQueryClient } from '@tanstack/react-query';
import { type SubmitEvent, useId, useState } from 'react';
import { pathOf, request } from '../api/client.js';
import { describeError, RequestError } from '../api/errors.js';
import type { StatusAnswer } from '../api/interface.js';
import { useCount, useSession } from '../api/queries.js';
import { formatNumber } from '../format.js';
import { findType, type ResourceType, type StoredObject, templateOf } from '../resources.js';
import { Counted } from './counted.js';
import { Dialog } from './dialog.js';
import { announce, Failure, Loading } from './feedback.js';
import { Progress } from './progress.js';

interface DeleteDialogProps {
  type: ResourceType;
  object: Pick<StoredObject, 'id_developer' | 'name'>;
  onClose(): void;
  onDeleted(): void;
}

/** Deletes an object with everything below it, once its name has been typed. */
export function DeleteDialog({ type, object, onClose, onDeleted }: DeleteDialogProps) {
  const { document } = useSession();
  const queryClient = useQueryClient();
  const [typed, setTyped] = useState('');
  const [error, setError] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);
  const input = useId();
  const operation = document.paths[templateOf(type)]?.delete;
  const hasPreview = operation?.parameters?.some(({ name }) => name === 'dry_run') === true;

  async function remove(event: SubmitEvent): Promise<void> {
    event.preventDefault();
    if (typed !== object.name) return;
    setBusy(true);
    setError(undefined);
    const path = pathOf(type.plural, object.id_developer);
    try {
      await request('DELETE', path);
      announce(`Deleted ${object.name}.`);
    } catch (failure) {
      if (!(await isGone(path, failure))) {
        setError(failure);
        setBusy(false);
        return;
      }
      announce(`${object.name} is deleted. The service is still removing what was below it.`);
    }
    onDeleted();
    await queryClient.invalidateQueries();
  }

  return (
    <Dialog title={`Delete ${type.name}`} onClose={onClose}>
      <form className="form" onSubmit={remove}>
        <p>
          <strong>{object.name}</strong> is deleted with everything below it. This cannot be undone.
        </p>
        {hasPreview ? (
          <CascadePreview type={type} id={object.id_developer} />
        ) : (
          <ChildCounts type={type} id={object.id_developer} />
        )}
        <div className="field">
          <label htmlFor={input}>Type the name to confirm</label>
          <input id={input} value={typed} autoComplete="off" onChange={({ target }) => setTyped(target.value)} />
        </div>
        {error !== undefined && (
          <p role="alert" className="failure">
            {describeError(error)}
          </p>
        )}
        {isBusy && <Progress label="Deleting: the service completes this, also if you close this dialog." />}
        <div className="actions">
          <button type="submit" className="danger" disabled={typed !== object.name || isBusy}>
            Delete
          </button>
          <button type="button" onClick={onClose}>
            {isBusy ? 'Close' : 'Cancel'}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** After 5 s the service answers 5031, and deletes in the background what is below (`reference/resources.md#delete`). */
async function isGone(path: string, failure: unknown): Promise<boolean> {
  if (!(failure instanceof RequestError)) return false;
  if (failure.code !== 5031) return failure.code === 4041;
  return request('GET', path).then(
    () => false,
    (error: unknown) => error instanceof RequestError && error.code === 4041,
  );
}

/** The number of each type that would be removed, as the service counts them. */
function CascadePreview({ type, id }: { type: ResourceType; id: string }) {
  const path = pathOf(type.plural, id);
  const { data, error, refetch } = useQuery({
    queryKey: [path, 'dry_run'],
    queryFn: ({ signal }) => request<StatusAnswer>('DELETE', path, { query: { dry_run: 1 }, signal }),
  });
  if (error) return <Failure error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <Loading height="4rem" />;
  return <Counted counts={data.details} label="What is deleted" />;
}

/** The number of objects directly below. */
function ChildCounts({ type, id }: { type: ResourceType; id: string }) {
  const below = type.name === 'model' ? [] : type.children;
  return below.map(({ plural, field }) => <ChildCount key={plural} plural={plural} field={field} id={id} />);
}

function ChildCount({ plural, field, id }: { plural: string; field: string; id: string }) {
  const count = useCount(`/${plural}/`, { [field]: id });
  if (!count) return null;
  return (
    <p>
      {findType(plural)?.title} directly below it: {formatNumber(count)}
    </p>
  );
}
