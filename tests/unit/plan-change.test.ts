import { describe, expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import { type ChangePlan, type ObjectBefore, planChange } from '../../src/objects/write/plan.js';
import { device } from '../../src/resources/device/index.js';
import { group } from '../../src/resources/group.js';
import type { Values } from '../../src/schema/fields.js';
import type { Resource } from '../../src/schema/resource.js';

const newId = () => new mongoose.mongo.UUID();
const [project, service, otherService, hall] = [newId(), newId(), newId(), newId()];
const storedGroup = { id_developer: 'Hall@demo', name: 'Hall', id_service: 'Cooling@demo', version: 3 };
const inCooling = { stored: storedGroup, ancestors: [project, service], references: new Map() };
const moved = { ...inCooling, references: new Map([['id_service', { _id: otherService, ancestors: [project] }]]) };
const stayed = { ...inCooling, references: new Map([['id_service', { _id: service, ancestors: [project] }]]) };

interface Case {
  resource?: Resource;
  before?: ObjectBefore;
  values: Values;
  acceptedVersions?: readonly number[];
}

function plan({ resource = group, before = inCooling, values, acceptedVersions }: Case): ChangePlan {
  return planChange({ now: 1000, limit: undefined }, resource, before, { values, acceptedVersions });
}

describe('a write', () => {
  it('is conditional on the version that was loaded', () => {
    expect(plan({ values: { name: 'Barn', description: null } })).toEqual({
      kind: 'write',
      change: { set: { name: 'Barn' }, unset: ['description'], precondition: { version: 3 } },
    });
  });

  it('places the object below the parent that the values name', () => {
    expect(plan({ before: stayed, values: { id_service: 'Cooling@demo' } })).toEqual({
      kind: 'write',
      change: {
        set: { id_service: 'Cooling@demo', parent: service, ancestors: [project, service] },
        unset: [],
        precondition: { version: 3 },
      },
    });
  });

  it('is a move below another parent, and while an earlier move has not reached all that is below', () => {
    const values = { id_service: 'Heating@demo' };
    expect(plan({ before: moved, values })).toMatchObject({
      kind: 'move',
      change: { set: { parent: otherService, ancestors: [project, otherService] } },
    });
    expect(plan({ before: { ...stayed, isBeingMoved: true }, values })).toMatchObject({ kind: 'move' });
  });

  it('of a device that gets another parent unsets the former one', () => {
    const stored = { id_developer: 'd@demo', name: 'd', id_asset: 'Oven@demo', version: 0 };
    const references = new Map([['id_group', { _id: hall, ancestors: [project, service] }]]);
    const change = { resource: device, before: { stored, references }, values: { id_group: 'Hall@demo' } };
    expect(plan(change)).toMatchObject({ kind: 'write', change: { unset: ['id_asset'] } });
  });
});

describe('a refusal', () => {
  it('names every object that does not exist', () => {
    const stored = { id_developer: 'd@demo', name: 'd', id_group: 'Hall@demo', version: 0 };
    const values = { id_asset: 'gone@demo', id_model: 'none@demo' };
    expect(plan({ resource: device, before: { stored, references: new Map() }, values })).toEqual({
      kind: 'refuse',
      faults: { id_asset: 'does not exist', id_model: 'does not exist' },
      conflict: undefined,
    });
  });

  it('keeps the only parent of a device', () => {
    const stored = { id_developer: 'd@demo', name: 'd', id_group: 'Hall@demo', version: 0 };
    const refused = plan({ resource: device, before: { stored, references: new Map() }, values: { id_group: null } });
    expect(refused).toMatchObject({ faults: { id_group: 'exactly one of id_group and id_asset must be given' } });
  });

  it('is a conflict that shows the stored version if another one is accepted, faults or not', () => {
    const refused = plan({ values: { id_service: 'gone@demo' }, acceptedVersions: [1, 2] });
    expect(refused).toMatchObject({
      kind: 'refuse',
      faults: { id_service: 'does not exist' },
      conflict: { failure: 'conflict', details: { version: 'the stored version is 3' } },
    });
    expect(plan({ values: { name: 'Barn' }, acceptedVersions: [2, 3] })).toMatchObject({ kind: 'write' });
  });
});

describe('the object that a key is limited to', () => {
  const limit = { plural: 'groups', id_developer: 'Hall@demo', field: 'id_group', _id: hall } as const;
  const planLimited = (values: Values) =>
    planChange({ now: 1000, limit }, group, inCooling, { values, acceptedVersions: undefined });

  it('may send its parent, which is out of reach, as it is stored', () => {
    expect(planLimited({ id_service: 'Cooling@demo', name: 'Barn' })).toMatchObject({
      kind: 'write',
      change: { set: { name: 'Barn' } },
    });
  });

  it('does not move', () => {
    expect(() => planLimited({ id_service: 'Heating@demo' })).toThrow(
      expect.objectContaining({ failure: 'forbidden' }),
    );
  });
});
