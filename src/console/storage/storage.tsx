import { useState } from 'react';
import { pathOf, request } from '../api/client.js';
import { RequestError } from '../api/errors.js';
import { useAction, useApiMutation, useList, useSession } from '../api/hooks.js';
import type { StorageFile } from '../api/interface.js';
import { SchemaForm, type Values } from '../forms/form.js';
import { useAddress } from '../ui/address.js';
import { Form } from '../ui/button.js';
import { Select } from '../ui/choice.js';
import { ConfirmButton } from '../ui/dialog.js';
import { Loaded, Page, Panel } from '../ui/page.js';
import { columnsOf, PagedTable } from '../ui/table.js';

const template = '/external/{provider}/user/{username}/';

/** The linked storage of a user: its files, and its settings. The address names provider and user. */
export function Storage() {
  const { can, parameterOf } = useSession();
  const [{ provider = '', username = '' }, setSearch] = useAddress();
  const choices = parameterOf(template, 'provider')?.schema.enum?.map(String) ?? [];
  const [user, setUser] = useState(username);
  const choose = () => setSearch({ username: user.trim(), provider: provider || choices[0] });
  return (
    <Page title="Linked storage">
      <div className="stack">
        <Form className="row" onSubmit={choose}>
          <Select
            aria-label="Provider"
            value={provider}
            options={choices.map((choice) => [choice, choice])}
            onChange={(chosen) => setSearch({ provider: chosen })}
          />
          <input aria-label="User" placeholder="User" value={user} onChange={({ target }) => setUser(target.value)} />
          <button type="submit" className="primary">
            Open
          </button>
        </Form>
        {provider === '' || username === '' ? (
          <p className="empty">Choose a provider and a user, to see the files of their storage or to link one.</p>
        ) : (
          <>
            <Files key={`${provider}/${username}`} provider={provider} username={username} />
            {can('PUT', template) && <Settings key={provider} provider={provider} username={username} />}
          </>
        )}
      </div>
    </Page>
  );
}

interface LinkedProps {
  provider: string;
  username: string;
}

const page_size = 100;
const orderLabels: Readonly<Record<string, string>> = {
  all: 'by path',
  newest: 'newest first',
  oldest: 'oldest first',
  random: 'random',
};

/** A storage may answer anything: only web addresses become links. */
const render = {
  path: ({ path, url }: StorageFile) => (
    <a href={/^https?:\/\//.test(url) ? url : undefined} target="_blank" rel="noreferrer">
      {path}
    </a>
  ),
};

/** The files come on one page of the interface, of up to 100,000: they are shown a part at a time. */
function Files({ provider, username }: LinkedProps) {
  const { entryOf, parameterOf } = useSession();
  const [{ op = 'newest' }, setSearch] = useAddress();
  const [offset, setOffset] = useState(0);
  const orders = parameterOf(template, 'op')?.schema.enum?.map(String) ?? [];
  const answer = useList<StorageFile>(pathOf('external', provider, 'user', username), { op });
  const isUnlinked = answer.error instanceof RequestError && answer.error.code === 4011;
  function sortBy(order: string): void {
    setOffset(0);
    setSearch({ op: order });
  }
  return (
    <Panel
      title="Files"
      actions={
        <span>
          Order{' '}
          <Select
            aria-label="Order"
            value={op}
            options={orders.map((order) => [order, orderLabels[order] ?? order])}
            onChange={sortBy}
          />
        </span>
      }
    >
      {isUnlinked ? (
        <p className="muted">No storage of this kind is linked for {username}.</p>
      ) : (
        <Loaded of={answer}>
          {({ result, total_documents }) =>
            total_documents === 0 ? (
              <p className="muted">No files.</p>
            ) : (
              <PagedTable
                caption="Files"
                entries={result.slice(offset, offset + page_size)}
                keyOf={({ path }) => path}
                columns={columnsOf(entryOf(template), ['path', 'size', 'modified_at'], { render })}
                offset={offset}
                max={page_size}
                total={result.length}
                onMove={setOffset}
              />
            )
          }
        </Loaded>
      )}
    </Panel>
  );
}

function Settings({ provider, username }: LinkedProps) {
  const path = pathOf('external', provider, 'user', username);
  const schema = useSession().bodyOf('PUT', template);
  const { properties = {} } = schema;
  const link = useApiMutation({
    run: (body: Values) => request('PUT', path, { body }),
    message: () => 'The storage is linked.',
  });
  const unlink = useAction(() => request('DELETE', path), 'The storage is unlinked.');
  return (
    <Panel
      title="Link"
      actions={
        <ConfirmButton label="Unlink" heading="Unlink storage" onConfirm={unlink}>
          The service forgets the settings of this storage, and links to its files end. The files stay.
        </ConfirmButton>
      }
    >
      <SchemaForm
        schema={schema}
        fields={Object.keys(properties).filter((name) => properties[name]?.['x-provider'] === provider)}
        submitLabel="Try and link"
        mutation={link}
      />
    </Panel>
  );
}
