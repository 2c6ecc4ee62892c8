import { expect, it } from '@jest/globals';
import {
  findFaults,
  type LoggedEvent,
  type SentRequest,
  type StoredObject,
} from '../../scripts/checks/event-log-model.js';

const base = { plural: 'devices', id: 'a@demo', version: undefined };
const requests: SentRequest[] = [
  { ...base, method: 'POST', code: 2001, took_ms: 1, request_id: 'r1' },
  { ...base, method: 'PUT', code: 2005, took_ms: 1, request_id: 'r2', version: 1 },
  { ...base, method: 'PUT', code: 4003, took_ms: 1, request_id: 'r3' },
];
const event = (_id: string, kind: string, request_id: string, version?: number): LoggedEvent => ({
  ...{ _id, type: `device.${kind}`, resource: 'device', id_developer: 'a@demo', request_id },
  ...(version !== undefined && { data: { version } }),
});
const log = [event('1', 'created', 'r1'), event('2', 'updated', 'r2', 1)];
const stored: StoredObject[] = [{ resource: 'device', id_developer: 'a@demo', version: 1 }];

it('finds nothing in a log that is right', () => {
  expect(findFaults(requests, log, stored)).toEqual([]);
});

it.each([
  ['a missing event', log.slice(0, 1), stored],
  ['a repeated event', [...log, event('3', 'updated', 'r2', 1)], stored],
  ['an event of a refused request', [...log, event('3', 'updated', 'r3', 2)], stored],
  ['a wrong order', log.toReversed(), stored],
  ['a wrong version', [event('1', 'created', 'r1'), event('2', 'updated', 'r2', 2)], stored],
  ['a deleted object that is stored', [...log, event('3', 'deleted', 'r4')], stored],
  ['a missing deletion', log, []],
  ['an object without an event', log, [...stored, { resource: 'device', id_developer: 'b@demo', version: 0 }]],
])('finds %s', (_fault, events, objects) => {
  expect(findFaults(requests, events, objects)).not.toEqual([]);
});
