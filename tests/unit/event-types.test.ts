import { expect, it } from '@jest/globals';
import { defineEvents } from '../../src/resources/event.js';
import { collections, event, group } from '../../src/resources/index.js';
import { parent } from '../../src/schema/fields/reference.js';
import { name } from '../../src/schema/fields/text.js';
import { required } from '../../src/schema/fields.js';
import { buildListFilter } from '../../src/schema/list-parameters.js';
import { buildMessages, defineResource, eventTypesOf, type ListedType } from '../../src/schema/resource.js';

const valve = defineResource({
  name: 'valve',
  plural: 'valves',
  messages: buildMessages('Valve'),
  fields: { name: required(name()), id_group: parent(group) },
});

function select(listed: ListedType, values: Record<string, string>): unknown {
  return buildListFilter(listed, values, 0);
}

it('a new resource has events that can be filtered', () => {
  const events = defineEvents([group, valve]);
  const all = { type: { $in: ['valve.created', 'valve.updated', 'valve.deleted'] } };
  expect(select(events, { type: 'valve.' })).toEqual(all);
  expect(select(events, { resource: 'valve' })).toEqual(all);
  expect(select(events, { type: 'valve.updated' })).toEqual({ type: { $in: ['valve.updated'] } });
  expect(select(event, { type: 'valve.' })).toEqual({ type: { $in: [] } });
});

it('a resource can declare other kinds, as the log of its gaps does', () => {
  const events = defineEvents([{ ...valve, events: { insert: 'opened', more: ['leaked'] } }]);
  expect(select(events, { type: 'valve.' })).toEqual({ type: { $in: ['valve.opened', 'valve.leaked'] } });
  expect(select(events, { type: 'log.' })).toEqual({ type: { $in: ['log.gap'] } });
});

it('the log has the types of the reference', () => {
  expect([...eventTypesOf(collections), 'log.gap'].sort()).toEqual(
    [
      ...[
        'project',
        'service',
        'group',
        'asset',
        'device',
        'model',
        'credentials',
        'filter',
        'webhook',
        'alarmrule',
      ].flatMap((subject) => [`${subject}.created`, `${subject}.updated`, `${subject}.deleted`]),
      ...['device.status_changed', 'deviceconfig.created', 'topic.created', 'topic.deleted', 'apikey.created'],
      ...['apikey.deleted', 'storage.linked', 'storage.updated', 'storage.unlinked', 'webhook.disabled'],
      ...['created', 'sent', 'done', 'failed', 'expired', 'cancelled'].map((kind) => `command.${kind}`),
      ...['state.desired', 'config.desired', 'config.applied', 'config.refused', 'streams.deleted', 'log.gap'],
      ...['alarm.raised', 'alarm.acknowledged', 'alarm.closed'],
    ].sort(),
  );
});
