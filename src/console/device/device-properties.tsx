import { pathOf } from '../api/client.js';
import type { Device } from '../api/interface.js';
import { useGet } from '../api/queries.js';
import { isDeepEqual } from '../lib/compare.js';
import { ObjectLink } from '../ui/address.js';
import { Facts, Panel } from '../ui/page.js';

/** The properties of a device; those that its model gives are marked. */
export function DeviceProperties({ device: { id_model, properties = {} } }: { device: Device }) {
  const model = useGet<Pick<Device, 'properties'>>(
    pathOf('models', id_model ?? ''),
    {},
    { enabled: id_model !== undefined },
  );
  const inherited = model.data?.properties ?? {};
  const isInherited = (name: string) =>
    Object.hasOwn(inherited, name) && isDeepEqual(inherited[name], properties[name]);
  return (
    <Panel title="Properties">
      {Object.keys(properties).length === 0 && <p className="muted">None.</p>}
      <Facts
        entries={Object.entries(properties).map(([name, value]) => [
          name,
          <div key={name}>
            <code className="json">{JSON.stringify(value)}</code>{' '}
            {id_model !== undefined && isInherited(name) && (
              <span className="muted">
                from <ObjectLink plural="models" id={id_model} />
              </span>
            )}
          </div>,
        ])}
      />
    </Panel>
  );
}
