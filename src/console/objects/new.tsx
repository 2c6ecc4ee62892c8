import { useNavigate } from '@tanstack/react-router';
import { request, send } from '../api/client.js';
import { useApiMutation, useSession } from '../api/hooks.js';
import type { ListAnswer, ResourceType } from '../api/resources.js';
import { SchemaForm, type Values } from '../forms/form.js';
import { ListLink, useAddress } from '../ui/address.js';
import { Page, Panel } from '../ui/page.js';
import { formOf } from './form-extras.js';

/** Creates an object; the address may name fields, such as the parent. */
export function NewObject({ type }: { type: ResourceType }) {
  const { noun, plural, title, list_path } = type;
  const [search] = useAddress();
  const navigate = useNavigate();
  const { bodyOf, can } = useSession();
  const isDevice = plural === 'devices';
  const described = bodyOf('POST', list_path);
  // a name is enough for a device
  const schema = isDevice ? { ...described, required: ['name'] } : described;
  const { hidden, ...form } = formOf(type, schema);
  const fields = [...form.fields, ...hidden];
  const create = useApiMutation({
    async run(body: Values) {
      if (!isDevice) return createObject(list_path, body);
      const hasPlace = body.id_group !== undefined || body.id_asset !== undefined;
      const id_group = hasPlace || !can('POST', '/projects/') ? undefined : await createFirstGroup();
      return createObject(list_path, { type: noun, ...body, ...(id_group && { id_group }) });
    },
    message: (id, values) => `Created ${values.name ?? id}.`,
    // what a new device needs next
    onDone: (id) =>
      void navigate({
        to: '/$plural/$id',
        params: { plural, id },
        ...(isDevice && { search: { tab: 'connect' } }),
      }),
  });
  return (
    <Page title={`New ${noun}`} trail={<ListLink plural={plural}>{title}</ListLink>}>
      <Panel title="Fields">
        <SchemaForm
          schema={schema}
          {...form}
          initial={Object.fromEntries(Object.entries(search).filter(([field]) => fields.includes(field)))}
          submitLabel="Create"
          callOf={(body) => ({ method: 'POST', path: list_path, body })}
          mutation={create}
        />
      </Panel>
    </Page>
  );
}

const name = 'Default';

/** Creates an object. @returns its identifier */
async function createObject(path: string, body: object): Promise<string> {
  const response = await send('POST', path, { body });
  return decodeURIComponent(response.headers.get('Location')?.split('/').at(-2) ?? '');
}

/** Creates the first group of an account, with what it needs above it. @returns undefined if there are groups */
async function createFirstGroup(): Promise<string | undefined> {
  const { total_documents } = await request<ListAnswer<unknown>>('GET', '/groups/', { query: { max: 1 } });
  if (total_documents > 0) return undefined;
  const id_project = await findOrCreate('/projects/', { name, id_customer: name });
  const id_service = await findOrCreate('/services/', { name, id_project });
  return createObject('/groups/', { name, id_service });
}

/** Finds what an attempt before has left. */
async function findOrCreate(path: string, body: object): Promise<string> {
  const query = { name, max: 1, fields: 'id_developer' };
  const { result } = await request<ListAnswer<{ id_developer: string }>>('GET', path, { query });
  return result[0]?.id_developer ?? createObject(path, body);
}
