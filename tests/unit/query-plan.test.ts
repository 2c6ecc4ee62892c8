import { describe, expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import { planQuery } from '../../src/db/query-plan.js';
import type { KeyLimit } from '../../src/db/reach.js';
import { collections } from '../../src/resources/index.js';
import { createListParser } from '../../src/schema/list-parameters.js';
import { splitQuery } from '../../src/schema/query.js';
import type { ListedType } from '../../src/schema/resource.js';

const project: KeyLimit = {
  plural: 'projects',
  field: 'id_project',
  id_developer: 'p@acme',
  _id: new mongoose.mongo.UUID(),
};

function plan(plural: string, query: string, { within = {}, limit = undefined as KeyLimit | undefined } = {}) {
  const listed = collections.find((type) => type.plural === plural) as ListedType;
  const request = createListParser(listed)(splitQuery(query), 1_700_000_000);
  return planQuery(listed, { account: 'acme', limit }, request, within);
}

const pathsOf = (key: object = {}) => Object.keys(key).slice(1).join();

/** Index without the account, and order; then `scan:` the index of the whole list, `of:` indexes of parts, `total:` what is cached. */
function describePlan({ hint, sort, scanIndex, candidates = [], scope }: ReturnType<typeof plan>): string {
  const order = Object.entries(sort).map(([path, direction]) => `${direction === 1 ? '+' : '-'}${path}`);
  const parts = candidates.map((part) => `${pathsOf(part.hint)}${part.isExact ? '' : '~'}`);
  const more = { scan: pathsOf(scanIndex), of: parts.join(' '), total: scope && `(${pathsOf(scope)})` };
  const present = Object.entries(more).filter(([, text]) => text);
  return [pathsOf(hint), order.join(), ...present.map((entry) => entry.join(':'))].join(' ').trim();
}

const statusIndex = 'stream_safe_until,status_safe_until,stream_late_from,id_developer';

describe('a list is planned without the database', () => {
  it.each([
    ['', 'id_developer +id_developer total:()'],
    ['order=-1&offset=200', 'id_developer -id_developer total:()'],
    ['id_developer=n@acme', 'id_developer  total:(id_developer)'],
    ['enabled=1&order=-1', 'enabled,id_developer -id_developer total:(enabled)'],
    ['name=n', 'name,_id,id_developer +id_developer scan:id_developer total:(name)'],
    ['created_at=5', 'created_at,_id,id_developer +id_developer scan:id_developer total:(created_at)'],
    ['created_at_from=5&created_at_to=9', 'created_at,_id,id_developer +id_developer scan:id_developer'],
    ['sort=created_at&created_at_from=5&order=-1', 'created_at,_id,id_developer -created_at,-_id'],
    ['sort=name&order=-1', 'name,_id,id_developer -name,-_id total:()'],
    // no index has the order: in order of creation
    ['sort=type', 'created_at,_id,id_developer +type,+_id total:()'],
    ['sort=name&owner=alice', ' +name,+_id total:(owner)'],
    ['q=n', 'id_developer,search_text +id_developer'],
    ['q=n&owner=alice', 'owner,id_developer +id_developer'],
    ['owner=alice&enabled=1', ' +id_developer of:owner,id_developer enabled,id_developer total:(owner,enabled)'],
    ['owner=alice&created_at_from=5', ' +id_developer of:owner,id_developer created_at,_id,id_developer~'],
    ['status=ok', `${statusIndex} +id_developer scan:id_developer`],
    ['_t=str', `${statusIndex} +id_developer scan:id_developer`],
    ['_t=sta', 'status_safe_until,status_late_from,id_developer +id_developer scan:id_developer'],
    // the database chooses between the circle and what else is compared
    ['geo_lon=10&geo_lat=10&geo_distance=1000&owner=alice', ' +id_developer'],
  ])('of devices: %s', (query, expected) => {
    expect(describePlan(plan('devices', query))).toBe(expected.trim());
  });

  it.each([
    ['', 'ancestors,id_developer +id_developer total:(ancestors)'],
    ['owner=alice', ' +id_developer of:owner,id_developer ancestors,id_developer total:(owner,ancestors)'],
    ['created_at_from=5', ' +id_developer of:created_at,_id,id_developer~ ancestors,id_developer'],
    ['sort=name', ' +name,+_id scan:name,_id,id_developer of:ancestors,id_developer total:(ancestors)'],
  ])('of devices for a key limited to a project: %s', (query, expected) => {
    const limited = plan('devices', query, { limit: project });
    expect(describePlan(limited)).toBe(expected.trim());
    expect(limited.filter).toMatchObject({ $and: [{ account: 'acme' }, { ancestors: { $eq: project._id } }] });
  });

  it.each([
    ['deviceconfigs', '', 'device,created_at,_id +created_at,+_id'],
    ['deviceconfigs', 'name=n', ' +created_at,+_id of:device,created_at,_id'],
    ['deviceconfigs', 'sort=name', ' +name,+_id'],
    ['commands', 'order=-1', 'device,created_at,_id -created_at,-_id'],
  ])('of the %s of a device: %s', (plural, query, expected) => {
    const children = plan(plural, query, { within: { device: 'd@acme' } });
    expect(describePlan(children)).toBe(expected.trim());
    expect(children).not.toHaveProperty('scope');
  });

  const first = { account: 'acme', device: 'd@acme' };
  const rest = expect.anything();
  it.each([
    ['', '+_id', first, { ...first, at: rest }],
    ['at=5', '+_id', { ...first, at: 5 }, { ...first, at: 5, n: rest }],
    ['at_from=5&order=-1', '-_id', { ...first, at: 5 }, { ...first, at: rest, n: rest }],
    ['at_to=9&sort=at', '+_id', first, { ...first, at: 9, n: rest }],
    ['sort=created_at', '+_id.n', first, { ...first, at: rest }],
  ])('of the streams of a device, within bounds: %s', (query, order, $gte, $lt) => {
    const streams = plan('streams', query, { within: { '_id.device': 'd@acme' } });
    expect(describePlan(streams)).toBe(order);
    expect(streams.filter).toEqual({ _id: { $gte, $lt } });
  });
});
