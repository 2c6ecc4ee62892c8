import { formatNumber } from '../format.js';
import { resourceTypes } from '../resources.js';

const names: Readonly<Record<string, string>> = {
  deviceconfig: 'configuration files',
  stream: 'streams',
  credentials: 'MQTT credentials',
  topic: 'MQTT topics',
};

/** Numbers of objects by their type, as the service names it. */
export function Counted({ counts, label }: { counts: Readonly<Record<string, unknown>>; label: string }) {
  return (
    <ul className="counts" aria-label={label}>
      {Object.entries(counts).map(([name, count]) => (
        <li key={name}>
          <span>{resourceTypes.find((type) => type.name === name)?.title ?? names[name] ?? name}</span>
          <span className="number">{formatNumber(Number(count))}</span>
        </li>
      ))}
    </ul>
  );
}
