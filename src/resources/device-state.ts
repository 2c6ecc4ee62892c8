import { integer, timestamp } from '../schema/fields/number.js';
import { max_identifier_length, text } from '../schema/fields/text.js';
import { internal, optional, required } from '../schema/fields.js';
import { defineStored } from '../schema/resource.js';

const stateEvents = ['state.desired', 'config.desired', 'config.applied', 'config.refused'] as const;

/** Changes of a state, of which reports are no events. */
export const stateChanges = [...stateEvents, 'state.reported'] as const;

/** Desired and reported state of a device (reference/device-state.md). A device has at most one. */
export const devicestate = defineStored({
  name: 'state',
  plural: 'device_states',
  hidden: {
    device: required(text(max_identifier_length)),
    /** JSON as text: it is merged as a whole, and clients choose its keys. */
    desired: required(text(1)),
    reported: required(text(1)),
    desired_version: required(integer()),
    reported_version: required(integer()),
    desired_at: optional(timestamp()),
    reported_at: optional(timestamp()),
    /** Outcomes of the desired configuration files, by name, as JSON. */
    outcomes: optional(text(1)),
    /** The configuration files of both sides (`ConfigEntry`), for filters and counts. */
    configs: optional(internal()),
    /** Differs after every write. */
    revision: required(text(16)),
    last_change: optional(text(1)),
  },
  parentCollections: { device: 'devices' },
  unique: [['parent']],
  indexes: [
    ['account', 'device'],
    ['account', ...['name', 'status', 'desired', 'reported'].map((field) => `configs.${field}`)],
  ],
  events: {
    named: stateEvents,
    unlogged: ['desired', 'reported', 'configs'],
  },
});
