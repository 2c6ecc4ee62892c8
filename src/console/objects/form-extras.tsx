import type { ReactNode } from 'react';
import { RulePreview } from '../alarms/rule-preview.js';
import type { ResourceType } from '../api/resources.js';
import type { Values } from '../forms/form.js';

/** What the forms of some types show below their fields. */
const extras: ReadonlyMap<string, (values: Values) => ReactNode> = new Map([
  ['alarmrule', (values) => <RulePreview rule={values} />],
]);

export function findFormExtra({ name }: ResourceType): ((values: Values) => ReactNode) | undefined {
  return extras.get(name);
}
