import { useNavigate } from '@tanstack/react-router';
import { send } from '../api/client.js';
import { useApiMutation } from '../api/queries.js';
import type { ResourceType } from '../api/resources.js';
import { useSession } from '../api/session.js';
import { fieldsOf, SchemaForm, type Values } from '../forms/form.js';
import { ListLink, useAddress } from '../ui/address.js';
import { Page, Panel } from '../ui/page.js';
import { findFormExtra } from './form-extras.js';

/** Creates an object; the address may name fields, such as the parent. */
export function NewObject({ type }: { type: ResourceType }) {
  const { noun, plural, title, list_path } = type;
  const [search] = useAddress();
  const navigate = useNavigate();
  const schema = useSession().bodyOf('POST', list_path);
  const fields = fieldsOf(schema);
  const create = useApiMutation({
    async run(body: Values) {
      const response = await send('POST', list_path, { body });
      return decodeURIComponent(response.headers.get('Location')?.split('/').at(-2) ?? '');
    },
    message: (id, values) => `Created ${values.name ?? id}.`,
    // what a new device needs next
    onDone: (id) =>
      void navigate({
        to: '/$plural/$id',
        params: { plural, id },
        ...(plural === 'devices' && { search: { tab: 'connect' } }),
      }),
  });
  return (
    <Page title={`New ${noun}`} trail={<ListLink plural={plural}>{title}</ListLink>}>
      <Panel title="Fields">
        <SchemaForm
          schema={schema}
          fields={fields}
          initial={Object.fromEntries(Object.entries(search).filter(([field]) => fields.includes(field)))}
          submitLabel="Create"
          callOf={(body) => ({ method: 'POST', path: list_path, body })}
          mutation={create}
        >
          {findFormExtra(type)}
        </SchemaForm>
      </Panel>
    </Page>
  );
}
