import type { ReactNode } from 'react';
import { RulePreview } from '../alarms/rule-preview.js';
import type { ResourceType } from '../api/resources.js';
import type { Values } from '../forms/form.js';

/** Parts of forms below the fields, by type. */
const extras: ReadonlyMap<string, (values: Values) => ReactNode> = new Map([
  ['alarmrule', (values) => <RulePreview rule={values} />],
]);

export function findFormExtra({ name }: ResourceType): ((values: Values) => ReactNode) | undefined {
  return extras.get(name);
}
