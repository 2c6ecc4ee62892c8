import { ObjectLink } from '../address.js';
import { pathOf } from '../api/client.js';
import { useGet } from '../api/queries.js';
import { isDeepEqual } from '../compare.js';
import type { StoredObject } from '../resources.js';
import { Panel } from './page.js';

/** The properties of a device; those that its model gives are marked. */
export function DeviceProperties({ device }: { device: StoredObject }) {
  const id = typeof device.id_model === 'string' ? device.id_model : undefined;
  const model = useGet<StoredObject>(pathOf('models', id ?? ''), {}, { enabled: id !== undefined }).data;
  const properties = (device.properties ?? {}) as Record<string, unknown>;
  const inherited = (model?.properties ?? {}) as Record<string, unknown>;
  const names = Object.keys(properties);
  return (
    <Panel title="Properties">
      {names.length === 0 && <p className="muted">None.</p>}
      <dl className="fields">
        {names.map((name) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>
              <code className="json">{JSON.stringify(properties[name])}</code>{' '}
              {id !== undefined && Object.hasOwn(inherited, name) && isDeepEqual(inherited[name], properties[name]) && (
                <span className="muted">
                  from <ObjectLink plural="models" id={id} />
                </span>
              )}
            </dd>
          </div>
        ))}
      </dl>
    </Panel>
  );
}
