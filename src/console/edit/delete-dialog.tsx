import { useQuery } from '@tanstack/react-query';
import { pathOf, request } from '../api/client.js';
import { RequestError } from '../api/errors.js';
import { useApiMutation } from '../api/hooks.js';
import type { StatusAnswer } from '../api/interface.js';
import type { ResourceType, StoredObject } from '../api/resources.js';
import { Dialog } from '../ui/dialog.js';
import { Loaded } from '../ui/page.js';
import { Progress } from '../ui/progress.js';
import { ConfirmForm, DeletedCounts } from './confirm.js';

interface DeleteDialogProps {
  type: ResourceType;
  object: StoredObject;
  onClose(): void;
  onDeleted(): void;
}

/** Deletes an object with everything below it, once its name has been typed. */
export function DeleteDialog({ type, object: { id_developer, name }, onClose, onDeleted }: DeleteDialogProps) {
  const path = pathOf(type.plural, id_developer);
  const preview = useQuery({
    queryKey: [path, 'dry_run'],
    queryFn: ({ signal }) => request<StatusAnswer>('DELETE', path, { query: { dry_run: 1 }, signal }),
  });
  const remove = useApiMutation({
    async run() {
      try {
        await request('DELETE', path);
        return `Deleted ${name}.`;
      } catch (failure) {
        if (!(await isGone(path, failure))) throw failure;
        return `${name} is deleted. The service is still removing what was below it.`;
      }
    },
    message: (text) => text,
    onDone: onDeleted,
  });
  return (
    <Dialog title={`Delete ${type.noun}`} onClose={onClose}>
      <ConfirmForm
        text={name}
        submitLabel="Delete"
        isDangerous
        mutation={remove}
        onConfirm={remove.mutate}
        onCancel={onClose}
      >
        <p>
          <strong>{name}</strong> is deleted with everything below it. This cannot be undone.
        </p>
        <Loaded of={preview} height="4rem">
          {({ details }) => <DeletedCounts counts={details} />}
        </Loaded>
        {remove.isPending && <Progress label="Deleting: the service completes this, also if you close this dialog." />}
      </ConfirmForm>
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
