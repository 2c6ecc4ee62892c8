import { useQuery } from '@tanstack/react-query';
import { Link, ObjectLink } from '../address.js';
import { pathOf, request } from '../api/client.js';
import { type ResourceType, referredType, type StoredObject } from '../resources.js';

interface Step {
  plural: string;
  id: string;
}

const parentFields = ['id_asset', 'id_group', 'id_service', 'id_project'];

/** Finds the objects above one, the project first. */
export async function findAncestors(object: StoredObject, signal: AbortSignal): Promise<Step[]> {
  const field = parentFields.find((name) => typeof object[name] === 'string');
  const plural = field && referredType(field);
  if (field === undefined || plural === undefined) return [];
  const id = String(object[field]);
  const parent = await request<StoredObject>('GET', pathOf(plural, id), { signal });
  return [...(await findAncestors(parent, signal)), { plural, id }];
}

/** The way from the project down to an object. */
export function Trail({ type, object }: { type: ResourceType; object: StoredObject }) {
  const above = parentFields.map((field) => object[field]);
  const { data = [] } = useQuery({
    queryKey: ['ancestors', object.id_developer, type.plural, ...above],
    queryFn: ({ signal }) => findAncestors(object, signal),
  });
  return (
    <nav aria-label="Breadcrumbs">
      <ol className="trail">
        <li>
          <Link to="/$plural" params={{ plural: type.plural }}>
            {type.title}
          </Link>
        </li>
        {data.map(({ plural, id }) => (
          <li key={id}>
            <ObjectLink plural={plural} id={id} />
          </li>
        ))}
      </ol>
    </nav>
  );
}
