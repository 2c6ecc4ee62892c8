import { Link, useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { pathOf, request } from '../api/client.js';
import { useAction, useApiMutation, useGet, useSession } from '../api/hooks.js';
import type { StatusAnswer } from '../api/interface.js';
import type { Entry } from '../api/resources.js';
import { findChanges } from '../edit/changes.js';
import { CreateWithSecret } from '../forms/create-form.js';
import { fieldsOf, type Values } from '../forms/form.js';
import { ObjectTable } from '../lists/object-table.js';
import { Button } from '../ui/button.js';
import { ConfirmButton, DialogButton, SecretDialog } from '../ui/dialog.js';
import { Loaded, Page, Panel } from '../ui/page.js';
import { idOf } from '../ui/table.js';
import { DeliveredEvent, WebhookForm } from './webhook-form.js';

const template = '/webhooks/';
const object_path = '/webhooks/{webhook_id_developer}/';

const render = {
  name: (entry: Entry) => (
    <Link to="/webhooks/$id" params={{ id: idOf(entry) }}>
      {String(entry.name)}
    </Link>
  ),
};

/** The webhooks of the account. */
export function Webhooks() {
  return (
    <Page
      title="Webhooks"
      actions={
        <CreateWithSecret
          label="New webhook"
          kind="primary"
          path={template}
          secret="secret"
          secret_title="Signing secret"
          Form={WebhookForm}
        />
      }
    >
      <ObjectTable
        caption="Webhooks"
        template={template}
        columns={['name', 'format', 'url', 'types', 'enabled', 'created_at']}
        render={render}
        empty="None yet."
      />
    </Page>
  );
}

/** One webhook with its deliveries. Only one for programs has a secret, which an answer may hold. */
export function Webhook({ id }: { id: string }) {
  const [secret, setSecret] = useState<string>();
  const showSecret = ({ details }: StatusAnswer) => setSecret(details.secret as string | undefined);
  const answer = useGet<Entry>(pathOf('webhooks', id));
  return (
    <Page title={String(answer.data?.name ?? 'Webhook')} trail={<Link to="/webhooks">Webhooks</Link>}>
      <Loaded of={answer}>
        {(webhook) => (
          <div className="stack">
            <Deliveries id={id} />
            <EditWebhook webhook={webhook} onSaved={showSecret} />
            <DangerZone webhook={webhook} onRenewed={showSecret} />
            <SecretDialog title="Signing secret" secret={secret} onClose={() => setSecret(undefined)} />
          </div>
        )}
      </Loaded>
    </Page>
  );
}

/** Tests are sent once, and are not in the log of events. */
const test_type = 'webhook.test';

function Deliveries({ id }: { id: string }) {
  const test = useAction(
    () => request<StatusAnswer>('POST', pathOf('webhooks', id, 'test')),
    ({ details: { error, status } }) =>
      `Test: ${error ?? (status === undefined ? 'the mail server took it' : `answered with status ${status}`)}`,
  );
  const retry = useAction(
    (event: string) => request('POST', pathOf('webhooks', id, 'deliveries', event, 'retry')),
    'Sent again.',
  );
  return (
    <Panel title="Deliveries" actions={<Button label="Send a test" onClick={() => test()} />}>
      <ObjectTable
        caption="Deliveries"
        template={`${object_path}deliveries/`}
        path={pathOf('webhooks', id, 'deliveries')}
        columns={['at', 'type', 'attempt', 'status', 'error', 'took_ms', 'next_at', 'count']}
        keyOf={({ event, attempt, at }) => `${event} ${attempt} ${at}`}
        rowAction={({ event, type }) =>
          type === test_type ? null : (
            <span className="row">
              <DialogButton label="Show" heading={String(type)} of={String(event)}>
                {() => <DeliveredEvent id={String(event)} />}
              </DialogButton>
              <Button label="Retry" of={String(event)} onClick={() => retry(String(event))} />
            </span>
          )
        }
        empty="Nothing has been delivered yet."
      />
    </Panel>
  );
}

function EditWebhook({ webhook, onSaved }: { webhook: Entry; onSaved(answer: StatusAnswer): void }) {
  const { bodyOf, can } = useSession();
  const schema = bodyOf('PUT', object_path);
  const save = useApiMutation({
    run: (values: Values) => {
      const body = { ...findChanges(webhook, values, fieldsOf(schema)), version: webhook.version };
      return request<StatusAnswer>('PUT', pathOf('webhooks', idOf(webhook)), { body });
    },
    message: () => 'Saved.',
    onDone: onSaved,
  });
  if (!can('PUT', object_path)) return null;
  return (
    <Panel title="Edit">
      <WebhookForm key={String(webhook.version)} schema={schema} initial={webhook} submitLabel="Save" mutation={save} />
    </Panel>
  );
}

function DangerZone({ webhook, onRenewed }: { webhook: Entry; onRenewed(answer: StatusAnswer): void }) {
  const navigate = useNavigate();
  const id = idOf(webhook);
  const renew = useAction(() => request<StatusAnswer>('POST', pathOf('webhooks', id, 'secret')).then(onRenewed));
  const remove = useAction(() => request('DELETE', pathOf('webhooks', id)).then(() => navigate({ to: '/webhooks' })));
  return (
    <Panel title="Danger zone">
      <div className="row">
        {webhook.format === 'standard' && (
          <ConfirmButton label="New secret" heading="New signing secret" onConfirm={renew}>
            The receiver needs the new secret: the former one signs too, for 24 hours.
          </ConfirmButton>
        )}
        <ConfirmButton label="Delete" heading="Delete webhook" kind="danger" onConfirm={remove}>
          <strong>{String(webhook.name)}</strong> is sent nothing any more, and its deliveries are forgotten.
        </ConfirmButton>
      </div>
    </Panel>
  );
}
