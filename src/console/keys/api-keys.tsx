import { pathOf, request } from '../api/client.js';
import { useAction } from '../api/hooks.js';
import { type Entry, limitFields } from '../api/resources.js';
import { CreateWithSecret } from '../forms/create-form.js';
import { ObjectTable } from '../lists/object-table.js';
import { ObjectLink } from '../ui/address.js';
import { ConfirmButton } from '../ui/dialog.js';
import { Page } from '../ui/page.js';

const template = '/apikeys/';

/** Scope of the key, and the part of the fleet to which it is limited. */
const render = {
  scope(key: Entry) {
    const limit = Object.entries(limitFields).find(([field]) => key[field] !== undefined);
    if (limit === undefined) return String(key.scope);
    const [field, plural] = limit;
    return (
      <>
        {String(key.scope)}, only <ObjectLink plural={plural} id={String(key[field])} />
      </>
    );
  },
};

/** The API keys of the account. */
export function ApiKeys() {
  const revoke = useAction((id: string) => request('DELETE', pathOf('apikeys', id)), 'The key is revoked.');
  return (
    <Page
      title="API keys"
      actions={
        <CreateWithSecret label="New key" kind="primary" path={template} secret="key" secret_title="The new key" />
      }
    >
      <ObjectTable
        caption="API keys"
        template={template}
        columns={['username', 'scope', 'description', 'expires_at', 'created_at', 'id']}
        render={render}
        rowAction={({ id, username, scope, description }) => (
          <ConfirmButton label="Revoke" heading="Revoke key" of={String(id)} onConfirm={() => revoke(String(id))}>
            <div className="stack">
              <p>
                <strong>{String(username)}</strong>, scope {String(scope)} {description ? `(${description})` : ''}
              </p>
              <p>Programs and devices that use it are shut out at once. If it is your own, you are signed out.</p>
            </div>
          </ConfirmButton>
        )}
      />
    </Page>
  );
}
