import { choice, max_identifier_length, text } from '../../schema/fields/text.js';
import { withDocumentation } from '../../schema/fields.js';
import type { Filter } from '../../schema/filters.js';

/** States of a configuration file on a device (reference/device-configs.md#fleet). */
export const configStatuses = ['pending', 'applied', 'refused', 'not_desired'] as const;
export type ConfigStatus = (typeof configStatuses)[number];

/** A configuration file on a device. */
export interface ConfigEntry {
  name: string;
  /** Versions; null: none. */
  desired: string | null;
  reported: string | null;
  status: ConfigStatus;
}

/** Characters of a name or version. */
export const max_config_text = 50;
const dependent = ['config_status', 'config_desired', 'config_reported'] as const;
const needs = 'Needs `config`.';

/** Devices by their configuration files, which are looked up before the list is read. */
export const byConfig: Filter = {
  params: {
    config: withDocumentation(text(max_config_text), {
      about: 'Only devices that shall have this configuration file, or have reported it.',
      example: 'pump.json',
    }),
    config_status: withDocumentation(choice(...configStatuses), {
      about: `Only devices on which that file has this state. ${needs}`,
      example: 'refused',
    }),
    config_desired: withDocumentation(text(max_config_text), {
      about: `Only devices that shall have this version of that file. ${needs}`,
      example: '1.1',
    }),
    config_reported: withDocumentation(text(max_config_text), {
      about: `Only devices that have reported this version of that file. ${needs}`,
      example: '1.0',
    }),
  },
  index: { paths: [] },
  check: (values, faults) => {
    const isNamed = values.config !== undefined || 'config' in faults;
    for (const param of dependent)
      if (values[param] !== undefined && !isNamed) faults[param] = 'needs config, the name of the file';
  },
  conditions: () => ({}),
};

/** The conditions of the filter on an entry, by its field. */
export function buildEntryConditions(params: Readonly<Record<string, unknown>>): Record<string, { $eq: string }> {
  const { config, config_status, config_desired, config_reported } = params;
  const wanted = { name: config, desired: config_desired, reported: config_reported, status: config_status };
  return Object.fromEntries(
    Object.entries(wanted).flatMap(([field, value]) => (typeof value === 'string' ? [[field, { $eq: value }]] : [])),
  );
}

/** The devices that a saved filter selects (reference/filters.md#use). */
export const bySavedFilter: Filter = {
  params: {
    filter: withDocumentation(text(max_identifier_length), {
      about: 'Only devices that this saved filter selects.',
      example: 'Silent pumps@demo',
      references: 'filters',
    }),
  },
  index: { paths: [] },
  conditions: () => ({}),
};
