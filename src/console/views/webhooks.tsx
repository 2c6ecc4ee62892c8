import { useQueryClient } from '@tanstack/react-query';
import { useNavigate, useParams } from '@tanstack/react-router';
import { useState } from 'react';
import { Link } from '../address.js';
import { findChanges } from '../api/changes.js';
import { pathOf, request } from '../api/client.js';
import { bodySchemaOf } from '../api/document.js';
import { describeError } from '../api/errors.js';
import type { StatusAnswer } from '../api/interface.js';
import { useGet, useSession } from '../api/queries.js';
import { Command } from '../components/command.js';
import { ConfirmButton } from '../components/confirm-button.js';
import { Dialog } from '../components/dialog.js';
import { announce, Loaded } from '../components/feedback.js';
import { fieldsOf, SchemaForm, type Values } from '../components/form.js';
import { type Entry, ObjectTable } from '../components/object-table.js';
import { Page, Panel } from '../components/page.js';
import { Time } from '../components/value.js';

const template = '/webhooks/';
const one = '/webhooks/{webhook_id_developer}/';
const deliveries = '/webhooks/{webhook_id_developer}/deliveries/';

/** The webhooks of the account. */
export function Webhooks() {
  const { document } = useSession();
  const queryClient = useQueryClient();
  const [isCreating, setCreating] = useState(false);
  const [secret, setSecret] = useState<string>();

  async function create(body: Values): Promise<void> {
    const { details } = await request<StatusAnswer>('POST', template, { body });
    setCreating(false);
    setSecret(String(details.secret));
    await queryClient.invalidateQueries({ queryKey: [template] });
  }

  return (
    <Page
      title="Webhooks"
      actions={
        <button type="button" className="primary" onClick={() => setCreating(true)}>
          New webhook
        </button>
      }
    >
      <ObjectTable
        caption="Webhooks"
        template={template}
        columns={['name', 'url', 'types', 'enabled', 'created_at']}
        keyOf={idOf}
        render={{
          name: (entry) => (
            <Link to="/webhooks/$id" params={{ id: idOf(entry) }}>
              {String(entry.name)}
            </Link>
          ),
        }}
        empty={<p className="muted">None yet.</p>}
      />
      {isCreating && (
        <Dialog title="New webhook" onClose={() => setCreating(false)}>
          <SchemaForm
            schema={bodySchemaOf(document, 'post', template) ?? {}}
            submitLabel="Create"
            onSubmit={create}
            onCancel={() => setCreating(false)}
          />
        </Dialog>
      )}
      {secret !== undefined && <SecretDialog secret={secret} onClose={() => setSecret(undefined)} />}
    </Page>
  );
}

const idOf = (entry: Entry) => String(entry.id_developer);

function SecretDialog({ secret, onClose }: { secret: string; onClose(): void }) {
  return (
    <Dialog title="Signing secret" onClose={onClose}>
      <p>This is the only time it is shown.</p>
      <Command text={secret} />
    </Dialog>
  );
}

/** One webhook with its deliveries. */
export function Webhook() {
  const { id = '' } = useParams({ strict: false }) as { id?: string };
  const answer = useGet<Entry>(pathOf('webhooks', id));
  return (
    <Page title={String(answer.data?.name ?? 'Webhook')} trail={<Link to="/webhooks">Webhooks</Link>}>
      <Loaded of={answer}>{(webhook) => <WebhookParts id={id} webhook={webhook} />}</Loaded>
    </Page>
  );
}

function WebhookParts({ id, webhook }: { id: string; webhook: Entry }) {
  const { document, can } = useSession();
  const queryClient = useQueryClient();
  const navigate = useNavigate();
  const [secret, setSecret] = useState<string>();
  const schema = bodySchemaOf(document, 'put', one) ?? {};

  /** Posts to a path below the webhook, and reports the outcome. */
  async function act(segments: string[], done: (details: StatusAnswer['details']) => void): Promise<void> {
    try {
      done((await request<StatusAnswer>('POST', pathOf('webhooks', id, ...segments))).details);
    } catch (error) {
      announce(describeError(error));
    }
    await queryClient.invalidateQueries();
  }

  async function save(values: Values): Promise<void> {
    const changes = findChanges(webhook, values, fieldsOf(schema));
    await request('PUT', pathOf('webhooks', id), { body: { ...changes, version: webhook.version } });
    announce('Saved.');
    await queryClient.invalidateQueries();
  }

  async function remove(): Promise<void> {
    try {
      await request('DELETE', pathOf('webhooks', id));
      await navigate({ to: '/webhooks' });
    } catch (error) {
      announce(describeError(error));
    }
  }

  return (
    <div className="stack">
      <Panel
        title="Deliveries"
        actions={
          <button
            type="button"
            onClick={() =>
              void act(['test'], (outcome) =>
                announce(`Test: ${String(outcome.error ?? `answered with status ${outcome.status}`)}`),
              )
            }
          >
            Send a test
          </button>
        }
      >
        <ObjectTable
          caption="Deliveries"
          template={deliveries}
          path={pathOf('webhooks', id, 'deliveries')}
          columns={['at', 'type', 'attempt', 'status', 'error', 'took_ms', 'next_at']}
          keyOf={({ event, attempt, at }) => `${event} ${attempt} ${at}`}
          render={{ at: ({ at }) => <Time seconds={Number(at)} />, status: ({ status }) => String(status ?? '–') }}
          rowAction={({ event }) => (
            <button
              type="button"
              onClick={() => void act(['deliveries', String(event), 'retry'], () => announce('Sent again.'))}
            >
              Retry<span className="hidden"> {String(event)}</span>
            </button>
          )}
          empty={<p className="muted">Nothing has been delivered yet.</p>}
        />
      </Panel>
      {can('PUT', one) && (
        <Panel title="Edit">
          <SchemaForm
            key={String(webhook.version)}
            schema={schema}
            initial={webhook}
            submitLabel="Save"
            onSubmit={save}
          />
        </Panel>
      )}
      <Panel title="Danger zone">
        <div className="actions">
          <ConfirmButton
            label="New secret"
            title="New signing secret"
            onConfirm={() => void act(['secret'], (details) => setSecret(String(details.secret)))}
          >
            The receiver needs the new secret: the former one signs too, for 24 hours.
          </ConfirmButton>
          <ConfirmButton label="Delete" title="Delete webhook" className="danger" onConfirm={() => void remove()}>
            <strong>{String(webhook.name)}</strong> is sent nothing any more, and its deliveries are forgotten.
          </ConfirmButton>
        </div>
      </Panel>
      {secret !== undefined && <SecretDialog secret={secret} onClose={() => setSecret(undefined)} />}
    </div>
  );
}
