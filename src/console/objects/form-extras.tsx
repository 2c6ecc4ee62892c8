import { RulePreview } from '../alarms/rule-preview.js';
import type { ResourceType } from '../api/resources.js';
import { QueryBuilder } from '../device/query-builder.js';
import type { FormExtra } from '../forms/form.js';

/** Parts of forms below the fields, by type. */
const extras: ReadonlyMap<string, FormExtra> = new Map([
  ['alarmrule', (values) => <RulePreview rule={values} />],
  ['filter', ({ query }, onChange) => <QueryBuilder query={query} onChange={onChange} />],
]);

export function findFormExtra({ name }: ResourceType): FormExtra | undefined {
  return extras.get(name);
}
