import './trail.css';
import { useQuery } from '@tanstack/react-query';
import { pathOf, request } from '../api/client.js';
import { parentFields, type ResourceType, resourceTypes, type StoredObject } from '../api/resources.js';
import { ListLink, ObjectLink } from '../ui/address.js';

interface Step {
  plural: string;
  id: string;
  name: string;
}

/** Finds the objects above an object, the project first. */
async function findAncestors(object: StoredObject, signal: AbortSignal): Promise<Step[]> {
  const field = parentFields.find((name) => typeof object[name] === 'string');
  const plural = resourceTypes.find(({ name }) => field === `id_${name}`)?.plural;
  if (field === undefined || plural === undefined) return [];
  const id = String(object[field]);
  const parent = await request<StoredObject>('GET', pathOf(plural, id), { signal });
  return [...(await findAncestors(parent, signal)), { plural, id, name: parent.name }];
}

/** The way from the project down to an object. */
export function Trail({ type: { plural, title }, object }: { type: ResourceType; object: StoredObject }) {
  const { data: steps = [] } = useQuery({
    queryKey: ['ancestors', object.id_developer, plural, ...parentFields.map((field) => object[field])],
    queryFn: ({ signal }) => findAncestors(object, signal),
  });
  return (
    <nav aria-label="Breadcrumbs">
      <ol className="row trail">
        <li>
          <ListLink plural={plural}>{title}</ListLink>
        </li>
        {steps.map(({ name, ...step }) => (
          <li key={step.id}>
            <ObjectLink {...step}>{name}</ObjectLink>
          </li>
        ))}
      </ol>
    </nav>
  );
}
