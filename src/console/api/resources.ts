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
  /** Types directly below it. */
  children: readonly ResourceType[];
}

function defineType(name: string, columns: readonly string[], ...children: ResourceType[]): ResourceType {
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

const device_columns = ['status', 'type', 'id_group', 'id_asset', 'last_stream_at', 'stream_due_at'];
export const deviceType = defineType('device', device_columns);
const assetType = defineType('asset', ['id_group', 'description', 'enabled'], deviceType);
const groupType = defineType('group', ['id_service', 'description', 'enabled'], assetType, deviceType);
const serviceType = defineType('service', ['id_project', 'description', 'enabled'], groupType);
const projectType = defineType('project', ['id_customer', 'description', 'enabled'], serviceType);
const modelType = defineType('model', ['description', 'enabled'], deviceType);

/** From the top of the hierarchy down. */
export const resourceTypes = [projectType, serviceType, groupType, assetType, deviceType, modelType] as const;

/** The field by which objects name the one of this type that they belong to. */
export function fieldFor({ name }: ResourceType): string {
  return `id_${name}`;
}

const alarmrule: ResourceType = {
  ...defineType('alarmrule', ['severity', 'conditions', 'for', 'enabled']),
  title: 'Alarm rules',
  noun: 'alarm rule',
};

const savedFilter: ResourceType = {
  ...defineType('filter', ['query', 'description']),
  title: 'Saved filters',
  noun: 'saved filter',
};

/** All types whose objects have a page. */
export const pageTypes: readonly ResourceType[] = [...resourceTypes, alarmrule, savedFilter];

/** Fields that name the parent of an object, the closest parent first. */
export const parentFields: readonly string[] = ['id_asset', 'id_group', 'id_service', 'id_project'];

/** The fields of a key that limit it to a part of the fleet, from the top down, with the types that they name. */
export const limitFields = {
  id_project: 'projects',
  id_service: 'services',
  id_group: 'groups',
  id_asset: 'assets',
  id_device: 'devices',
} as const;

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

/** One page of a list. */
export interface ListAnswer<T> {
  total_documents: number;
  result: T[];
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
export function describeAlarms(alarms: Partial<OpenAlarms>): string {
  const open = severities.filter((severity) => alarms[severity]);
  return open.map((severity) => `${formatNumber(alarms[severity] ?? 0)} ${severity}`).join(', ');
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

/** A value that devices of a model send, as the model describes it. */
export interface Measure {
  path: string;
  name?: string;
  unit?: string;
  decimals?: number;
  type?: 'number' | 'text' | 'boolean';
  min?: number;
  max?: number;
  /** Lists of devices are filtered and sorted by it. */
  filter?: boolean;
}

/** The part of a model that describes its devices. */
export interface Model {
  id_developer: string;
  measures?: readonly Measure[];
  properties?: Readonly<Record<string, unknown>>;
  stream_retention_days?: number;
  summary_retention_days?: number;
}

/** The fields that name the devices which a rule covers; at most one is set. */
export const scopeFields: readonly string[] = ['id_model', ...Object.keys(limitFields), 'filter'];

/** Builds the filters of the devices that an alarm rule covers; none if it covers all. */
export function queryOfScope(rule: Entry): Readonly<Record<string, string>> {
  const scope = scopeFields.filter((field) => typeof rule[field] === 'string' && rule[field] !== '');
  return Object.fromEntries(
    scope.map((field) => [field === 'id_device' ? 'id_developer' : field, String(rule[field])]),
  );
}
