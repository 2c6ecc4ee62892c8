import { useQuery } from '@tanstack/react-query';
import { pathOf, request } from '../api/client.js';
import type { Interface } from '../api/document.js';
import { useSession } from '../api/hooks.js';
import { shortenId } from '../api/names.js';
import { parentFields, type ResourceType, resourceTypes, type StoredObject } from '../api/resources.js';
import type { Place } from '../api/visited.js';
import { ListLink, ObjectLink } from '../ui/address.js';

/** Finds the objects above an object, the topmost first, up to the first one that the key may not see. */
async function findAncestors(object: StoredObject, can: Interface['can'], signal: AbortSignal): Promise<Place[]> {
  const field = parentFields.find((name) => typeof object[name] === 'string');
  const type = resourceTypes.find(({ name }) => field === `id_${name}`);
  if (field === undefined || type === undefined) return [];
  const { plural, object_path } = type;
  const id = String(object[field]);
  if (!can('GET', object_path)) return [{ plural, id, name: shortenId(id) }];
  const parent = await request<StoredObject>('GET', pathOf(plural, id), { signal });
  return [...(await findAncestors(parent, can, signal)), { plural, id, name: parent.name }];
}

/** The way from the project down to an object. */
export function Trail({ type: { plural, title }, object }: { type: ResourceType; object: StoredObject }) {
  const { can } = useSession();
  const { data: steps = [] } = useQuery({
    queryKey: ['ancestors', object.id_developer, plural, ...parentFields.map((field) => object[field])],
    queryFn: ({ signal }) => findAncestors(object, can, signal),
  });
  return (
    <nav aria-label="Breadcrumbs">
      <ol className="row trail">
        <li>
          <ListLink plural={plural}>{title}</ListLink>
        </li>
        {steps.map(({ name, ...step }) => (
          <li key={step.id}>
            <ObjectLink {...step} label={name} />
          </li>
        ))}
      </ol>
    </nav>
  );
}
