import { useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { Link, useAddress } from '../address.js';
import { send } from '../api/client.js';
import { bodySchemaOf } from '../api/document.js';
import { useSession } from '../api/queries.js';
import { announce } from '../components/feedback.js';
import { fieldsOf, SchemaForm, type Values } from '../components/form.js';
import { Page, Panel } from '../components/page.js';
import type { ResourceType } from '../resources.js';

/** Creates an object; the address may name fields, such as the parent. */
export function NewObject({ type }: { type: ResourceType }) {
  const { document } = useSession();
  const [search] = useAddress();
  const navigate = useNavigate();
  const queryClient = useQueryClient();
  const schema = bodySchemaOf(document, 'post', `/${type.plural}/`) ?? {};
  const fields = fieldsOf(schema);
  const initial = Object.fromEntries(Object.entries(search).filter(([name]) => fields.includes(name)));

  async function create(values: Values): Promise<void> {
    const given = Object.entries(values).filter(([, value]) => value !== undefined);
    const response = await send('POST', `/${type.plural}/`, { body: Object.fromEntries(given) });
    const id = decodeURIComponent(response.headers.get('Location')?.split('/').at(-2) ?? '');
    await queryClient.invalidateQueries();
    announce(`Created ${String(values.name ?? id)}.`);
    await navigate({ to: '/$plural/$id', params: { plural: type.plural, id } as never });
  }

  return (
    <Page
      title={`New ${type.name}`}
      trail={
        <Link to="/$plural" params={{ plural: type.plural }}>
          {type.title}
        </Link>
      }
    >
      <Panel title="Fields">
        <SchemaForm schema={schema} fields={fields} initial={initial} submitLabel="Create" onSubmit={create} />
      </Panel>
    </Page>
  );
}
