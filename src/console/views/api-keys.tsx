import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { pathOf, request } from '../api/client.js';
import { bodySchemaOf } from '../api/document.js';
import { describeError } from '../api/errors.js';
import type { StatusAnswer } from '../api/interface.js';
import { useSession } from '../api/queries.js';
import { Command } from '../components/command.js';
import { Dialog } from '../components/dialog.js';
import { announce } from '../components/feedback.js';
import { SchemaForm, type Values } from '../components/form.js';
import { type Entry, ObjectTable } from '../components/object-table.js';
import { Page, Panel } from '../components/page.js';

const template = '/apikeys/';

/** The API keys of the account. */
export function ApiKeys() {
  const queryClient = useQueryClient();
  const [issued, setIssued] = useState<string>();
  const [revoking, setRevoking] = useState<Entry>();
  const [isCreating, setCreating] = useState(false);
  const { document } = useSession();

  async function issue(body: Values): Promise<void> {
    const { details } = await request<StatusAnswer>('POST', template, { body });
    setCreating(false);
    setIssued(String(details.key));
    await queryClient.invalidateQueries({ queryKey: [template] });
  }

  return (
    <Page
      title="API keys"
      actions={
        <button type="button" className="primary" onClick={() => setCreating(true)}>
          New key
        </button>
      }
    >
      <ObjectTable
        caption="API keys"
        template={template}
        columns={['username', 'scope', 'description', 'expires_at', 'created_at', 'id']}
        keyOf={({ id }) => String(id)}
        rowAction={(entry) => (
          <button type="button" onClick={() => setRevoking(entry)}>
            Revoke…<span className="hidden"> {String(entry.id)}</span>
          </button>
        )}
      />
      {isCreating && (
        <Dialog title="New key" onClose={() => setCreating(false)}>
          <SchemaForm
            schema={bodySchemaOf(document, 'post', template) ?? {}}
            submitLabel="Create"
            onSubmit={issue}
            onCancel={() => setCreating(false)}
          />
        </Dialog>
      )}
      {issued !== undefined && (
        <Dialog title="The new key" onClose={() => setIssued(undefined)}>
          <p>This is the only time it is shown.</p>
          <Command text={issued} />
        </Dialog>
      )}
      {revoking && <Revocation entry={revoking} onClose={() => setRevoking(undefined)} />}
    </Page>
  );
}

function Revocation({ entry, onClose }: { entry: Entry; onClose(): void }) {
  const queryClient = useQueryClient();
  async function revoke(): Promise<void> {
    onClose();
    try {
      await request('DELETE', pathOf('apikeys', String(entry.id)));
      announce('The key is revoked.');
    } catch (error) {
      announce(describeError(error));
    }
    await queryClient.invalidateQueries({ queryKey: [template] });
  }
  return (
    <Dialog title="Revoke key" onClose={onClose}>
      <Panel title="Key">
        <p>
          {String(entry.username)}, scope {String(entry.scope)}{' '}
          {entry.description ? `(${String(entry.description)})` : ''}
        </p>
      </Panel>
      <p>Programs and devices that use it are shut out at once. If it is your own, you are signed out.</p>
      <div className="actions">
        <button type="button" className="danger" onClick={() => void revoke()}>
          Revoke
        </button>
        <button type="button" onClick={onClose}>
          Cancel
        </button>
      </div>
    </Dialog>
  );
}
