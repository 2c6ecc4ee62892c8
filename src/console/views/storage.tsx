import { useQueryClient } from '@tanstack/react-query';
import { type SubmitEvent, useState } from 'react';
import { useAddress } from '../address.js';
import { pathOf, request } from '../api/client.js';
import { bodySchemaOf, parameterOf, type Schema } from '../api/document.js';
import { describeError, RequestError } from '../api/errors.js';
import type { StorageFile } from '../api/interface.js';
import { useList, useSession } from '../api/queries.js';
import { ConfirmButton } from '../components/confirm-button.js';
import { announce, Loaded } from '../components/feedback.js';
import { SchemaForm, type Values } from '../components/form.js';
import { Page, Panel } from '../components/page.js';
import { Pager, Table } from '../components/table.js';
import { Time } from '../components/value.js';
import { formatBytes } from '../format.js';

const template = '/external/{provider}/user/{username}/';

/** The linked storage of a user: its files, and its settings. The address names provider and user. */
export function Storage() {
  const { document, can } = useSession();
  const [{ provider = '', username = '' }, setSearch] = useAddress();
  const choices = document.paths[template]?.get?.parameters?.find(({ name }) => name === 'provider')?.schema.enum ?? [];
  const [user, setUser] = useState(username);

  function choose(event: SubmitEvent): void {
    event.preventDefault();
    setSearch({ username: user.trim(), provider: provider || String(choices[0] ?? '') });
  }

  return (
    <Page title="Linked storage">
      <div className="stack">
        <form className="filter-bar" onSubmit={choose}>
          <select
            aria-label="Provider"
            value={provider}
            onChange={({ target }) => setSearch({ provider: target.value })}
          >
            {choices.map((choice) => (
              <option key={choice}>{choice}</option>
            ))}
          </select>
          <input aria-label="User" placeholder="User" value={user} onChange={({ target }) => setUser(target.value)} />
          <button type="submit" className="primary">
            Open
          </button>
        </form>
        {username === '' && (
          <p className="empty">Choose a provider and a user, to see the files of their storage or to link one.</p>
        )}
        {provider !== '' && username !== '' && (
          <>
            <Files key={`${provider}/${username}`} provider={provider} username={username} />
            {can('PUT', template) && <Link key={provider} provider={provider} username={username} />}
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

/** The files come on one page of the interface, of up to 100,000: they are shown a part at a time. */
function Files({ provider, username }: LinkedProps) {
  const { document } = useSession();
  const [{ op = 'newest' }, setSearch] = useAddress();
  const [offset, setOffset] = useState(0);
  const orders = parameterOf(document, template, 'op')?.schema.enum?.map(String) ?? [];
  const answer = useList<StorageFile>(pathOf('external', provider, 'user', username), { op });
  const isUnlinked = answer.error instanceof RequestError && answer.error.code === 4011;
  return (
    <Panel
      title="Files"
      actions={
        <label>
          Order{' '}
          <select
            value={op}
            onChange={({ target }) => {
              setOffset(0);
              setSearch({ op: target.value });
            }}
          >
            {orders.map((order) => (
              <option key={order} value={order}>
                {orderLabels[order] ?? order}
              </option>
            ))}
          </select>
        </label>
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
              <>
                <Table
                  caption="Files"
                  entries={result.slice(offset, offset + page_size)}
                  keyOf={({ path }: StorageFile) => path}
                  columns={[
                    {
                      field: 'path',
                      render: ({ path, url }: StorageFile) => (
                        <a href={toSafeUrl(url)} target="_blank" rel="noreferrer">
                          {path}
                        </a>
                      ),
                    },
                    { field: 'size', render: ({ size }: StorageFile) => formatBytes(size) },
                    { field: 'modified_at', render: ({ modified_at }: StorageFile) => <Time seconds={modified_at} /> },
                  ]}
                />
                <div className="list-foot">
                  <Pager of="Files" offset={offset} max={page_size} total={result.length} onMove={setOffset} />
                </div>
              </>
            )
          }
        </Loaded>
      )}
    </Panel>
  );
}

const orderLabels: Readonly<Record<string, string>> = {
  all: 'by path',
  newest: 'newest first',
  oldest: 'oldest first',
  random: 'random',
};

/** A storage may answer anything: only web addresses become links. */
function toSafeUrl(url: string): string | undefined {
  return /^https?:\/\//.test(url) ? url : undefined;
}

/** The settings of a provider: the description of each begins with the provider it belongs to. */
function settingsOf(schema: Schema, provider: string): string[] {
  return Object.entries(schema.properties ?? {})
    .filter(([, { description = '' }]) => description.startsWith(`Of ${provider}`))
    .map(([name]) => name);
}

function Link({ provider, username }: LinkedProps) {
  const { document } = useSession();
  const queryClient = useQueryClient();
  const path = pathOf('external', provider, 'user', username);
  const schema = bodySchemaOf(document, 'put', template) ?? {};

  async function link(body: Values): Promise<void> {
    await request('PUT', path, { body });
    announce('The storage is linked.');
    await queryClient.invalidateQueries({ queryKey: [path] });
  }

  async function unlink(): Promise<void> {
    await request('DELETE', path)
      .then(() => announce('The storage is unlinked.'))
      .catch((error: unknown) => announce(describeError(error)));
    await queryClient.resetQueries({ queryKey: [path] });
  }

  return (
    <Panel
      title="Link"
      actions={
        <ConfirmButton label="Unlink" title="Unlink storage" onConfirm={() => void unlink()}>
          The service forgets the settings of this storage, and links to its files end. The files stay.
        </ConfirmButton>
      }
    >
      <SchemaForm schema={schema} fields={settingsOf(schema, provider)} submitLabel="Try and link" onSubmit={link} />
    </Panel>
  );
}
