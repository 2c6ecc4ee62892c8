import { expect, it } from '@jest/globals';
import { type CommandRequest, findCommandFaults } from '../../scripts/checks/commands-model.js';

const request = (id: string, kind: CommandRequest['kind'], code: number, sent_ms: number): CommandRequest => ({
  ...{ id, kind, code, sent_ms },
  device: 'a@demo',
  answered_ms: sent_ms + 1,
});
const requests = [
  request('1', 'create', 2001, 1),
  request('2', 'create', 2001, 3),
  request('1', 'done', 2005, 5),
  request('1', 'cancel', 4003, 7),
];
const receipts = [
  { device: 'a@demo', id: '1' },
  { device: 'a@demo', id: '2' },
  { device: 'a@demo', id: '1' },
];
const stored = [
  { id: '1', status: 'done' },
  { id: '2', status: 'sent' },
];
const events = ['created 1', 'created 2', 'sent 1', 'done 1', 'sent 2'].map((text, index) => {
  const [state, id = ''] = text.split(' ');
  return { _id: String(index), type: `command.${state}`, data: { id } };
});
const stranger = { _id: '9', type: 'command.created', data: { id: '3' } };

it('finds nothing in what is right', () => {
  expect(findCommandFaults(requests, receipts, stored, events)).toEqual([]);
});

it.each<[string, Parameters<typeof findCommandFaults>]>([
  ['a missing command', [requests, receipts, stored.slice(1), events.filter(({ data }) => data.id === '2')]],
  ['an end that was acknowledged otherwise', [[request('2', 'cancel', 2004, 9)], [], stored, events]],
  ['a missing event', [requests, receipts, stored, events.slice(0, -1)]],
  [
    'a repeated event',
    [requests, receipts, stored, [...events, { _id: '9', type: 'command.sent', data: { id: '2' } }]],
  ],
  ['a way back', [requests, receipts, stored, [...events, { _id: '9', type: 'command.sent', data: { id: '1' } }]]],
  ['an event without a command', [requests, receipts, stored, [...events, stranger]]],
  ['a wrong order of deliveries', [requests, receipts.toReversed().slice(1), stored, events]],
  ['a command of another device', [requests, [{ device: 'b@demo', id: '1' }], stored, events]],
])('finds %s', (_fault, parts) => {
  expect(findCommandFaults(...parts)).not.toEqual([]);
});
