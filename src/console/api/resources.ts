import { formatNumber } from '../lib/format.js';
import type { Alarm, Device } from './interface.js';

/** A type of object that has a place in the hierarchy or a list of its own. */
export interface ResourceType {
  /** Singular, as in events, counts and text. */
  name: string;
  plural: string;
  title: string;
  /** Singular for people. */
  noun: string;
  /** Path of the list, and of one object as the interface documents it. */
  list_path: string;
  object_path: string;
  /** Columns of its list unless the address names others. */
  columns: readonly string[];
  /** Types below it, with the field by which they name their parent. */
  children: readonly { plural: string; field: string }[];
}

function defineType(name: string, columns: readonly string[], children: ResourceType['children']): ResourceType {
  const plural = `${name}s`;
  return {
    name,
    plural,
    title: plural.charAt(0).toUpperCase() + plural.slice(1),
    noun: name,
    list_path: `/${plural}/`,
    object_path: `/${plural}/{${name}_id_developer}/`,
    columns: ['name', ...columns, 'updated_at'],
    children,
  };
}

/** From the top of the hierarchy down. */
export const resourceTypes: readonly ResourceType[] = [
  defineType('project', ['id_customer', 'description', 'enabled'], [{ plural: 'services', field: 'id_project' }]),
  defineType('service', ['id_project', 'description', 'enabled'], [{ plural: 'groups', field: 'id_service' }]),
  defineType(
    'group',
    ['id_service', 'description', 'enabled'],
    [
      { plural: 'assets', field: 'id_group' },
      { plural: 'devices', field: 'id_group' },
    ],
  ),
  defineType('asset', ['id_group', 'description', 'enabled'], [{ plural: 'devices', field: 'id_asset' }]),
  defineType('device', ['status', 'type', 'id_group', 'id_asset', 'last_stream_at', 'stream_due_at'], []),
  defineType('model', ['description', 'enabled'], [{ plural: 'devices', field: 'id_model' }]),
];

const alarmrule: ResourceType = {
  ...defineType('alarmrule', ['severity', 'conditions', 'for', 'enabled'], []),
  title: 'Alarm rules',
  noun: 'alarm rule',
};

const savedFilter: ResourceType = {
  ...defineType('filter', ['query', 'description'], []),
  title: 'Saved filters',
  noun: 'saved filter',
};

/** All types whose objects have a page. */
export const pageTypes: readonly ResourceType[] = [...resourceTypes, alarmrule, savedFilter];

/** Fields that name the parent of an object, the closest parent first. */
export const parentFields: readonly string[] = ['id_asset', 'id_group', 'id_service', 'id_project'];

/** Finds a type by its plural, as in addresses. */
export function findType(plural: string): ResourceType | undefined {
  return pageTypes.find((type) => type.plural === plural);
}

/** Finds a type by its name, as events and counts have it. */
export function findTypeByName(name: unknown): ResourceType | undefined {
  return pageTypes.find((type) => type.name === name);
}

/** Counts objects of a type in words: "1 device", "2,000 devices". */
export function countOf({ noun }: Pick<ResourceType, 'noun'>, count: number): string {
  return `${formatNumber(count)} ${count === 1 ? noun : `${noun}s`}`;
}

/** An object as lists and pages have it. */
export type Entry = Readonly<Record<string, unknown>>;

/** Fields that every stored object has. */
export interface StoredObject extends Entry {
  id_developer: string;
  name: string;
  version: number;
}

/** The worst first. */
export const severities = ['critical', 'warning', 'info'] as const satisfies Alarm['severity'][];

/** Numbers of open alarms, as a device shows them. */
export type OpenAlarms = Readonly<Record<Alarm['severity'], number>>;

/** Describes open alarms in words, the worst first, such as "2 critical, 1 info". */
export function describeAlarms(alarms: OpenAlarms): string {
  const open = severities.filter((severity) => alarms[severity] > 0);
  return open.map((severity) => `${formatNumber(alarms[severity])} ${severity}`).join(', ');
}

export type DeviceStatus = Device['status'];
/** From the best to the worst. */
export const statuses = ['ok', 'no_data', 'no_status', 'disconnected'] as const satisfies DeviceStatus[];

/** Statuses as people see them: a device that sends data, and has never sent a status, is well. */
export type ShownStatus = DeviceStatus | 'data_only';
export const shownStatuses = [
  'ok',
  'data_only',
  'no_data',
  'no_status',
  'disconnected',
] as const satisfies ShownStatus[];

export const statusLabels: Readonly<Record<ShownStatus, string>> = {
  ok: 'OK',
  data_only: 'OK, sends no status',
  no_data: 'Data late',
  no_status: 'Status late',
  disconnected: 'Disconnected',
};

/** The status of a device as it is shown. */
export function shownStatusOf({ status, last_status_at }: Partial<Device> | Entry): ShownStatus {
  return status === 'no_status' && last_status_at === undefined ? 'data_only' : (status as DeviceStatus);
}

/** The filters of the devices with a status as it is shown; no filter leaves out those that have sent a status. */
export function filtersOfStatus(status: ShownStatus): Readonly<Record<string, string>> {
  if (status === 'data_only') return { status: 'no_status', sort: 'status_due_at' };
  return { status, ...(status === 'no_status' && { _t: 'sta' }) };
}
