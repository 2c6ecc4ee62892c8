import { pathOf } from '../api/client.js';
import type { EventText } from '../api/interface.js';
import { useGet, useList } from '../api/queries.js';
import { useSession } from '../api/session.js';
import type { Values } from '../forms/form.js';
import { Failure, Loaded } from '../ui/feedback.js';

const text_template = '/events/{event}/text/';
const above = ['id_project', 'id_service', 'id_group', 'id_asset'];

/** The text that a webhook would send of the last event of its types and place. */
export function TextPreview({ webhook }: { webhook: Values }) {
  const { can } = useSession();
  const [type] = (webhook.types ?? []) as readonly string[];
  const scope = Object.fromEntries(above.flatMap((key) => (webhook[key] ? [[key, String(webhook[key])]] : [])));
  const query = { max: 1, fields: 'id', ...scope, ...(type !== '*' && { type }) };
  const isOffered = can('GET', text_template) && can('GET', '/events/');
  const last = useList<{ id: string }>('/events/', query, { enabled: isOffered && Boolean(type) });
  const id = last.data?.result[0]?.id;
  if (!isOffered) return null;
  return (
    <fieldset>
      <legend>Preview</legend>
      <Failure error={last.error} />
      {last.data?.result.length === 0 && <p className="help">There has been no such event yet.</p>}
      {id !== undefined && <EventMessage id={id} />}
    </fieldset>
  );
}

/** An event of the log as people get it. */
export function EventMessage({ id }: { id: string }) {
  const answer = useGet<EventText>(pathOf('events', id, 'text'), {}, { isStatic: true });
  return <Loaded of={answer}>{({ subject, text }) => <pre>{`${subject}\n\n${text}`}</pre>}</Loaded>;
}
