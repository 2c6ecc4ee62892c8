import type { Device } from './api/interface.js';
import { formatNumber } from './format.js';

/** A type of object that has a place in the hierarchy or a list of its own. */
export interface ResourceType {
  plural: string;
  /** Singular, as in events, counts and text. */
  name: string;
  title: string;
  /** Columns of its list unless the address names others. */
  columns: readonly string[];
  /** Types below it, with the field by which they name their parent. */
  children: readonly { plural: string; field: string }[];
}

/** From the top of the hierarchy down. */
export const resourceTypes: readonly ResourceType[] = [
  {
    plural: 'projects',
    name: 'project',
    title: 'Projects',
    columns: ['name', 'id_customer', 'description', 'enabled', 'updated_at'],
    children: [{ plural: 'services', field: 'id_project' }],
  },
  {
    plural: 'services',
    name: 'service',
    title: 'Services',
    columns: ['name', 'id_project', 'description', 'enabled', 'updated_at'],
    children: [{ plural: 'groups', field: 'id_service' }],
  },
  {
    plural: 'groups',
    name: 'group',
    title: 'Groups',
    columns: ['name', 'id_service', 'description', 'enabled', 'updated_at'],
    children: [
      { plural: 'assets', field: 'id_group' },
      { plural: 'devices', field: 'id_group' },
    ],
  },
  {
    plural: 'assets',
    name: 'asset',
    title: 'Assets',
    columns: ['name', 'id_group', 'description', 'enabled', 'updated_at'],
    children: [{ plural: 'devices', field: 'id_asset' }],
  },
  {
    plural: 'devices',
    name: 'device',
    title: 'Devices',
    columns: ['name', 'status', 'type', 'id_group', 'id_asset', 'last_stream_at', 'updated_at'],
    children: [],
  },
  {
    plural: 'models',
    name: 'model',
    title: 'Models',
    columns: ['name', 'description', 'enabled', 'updated_at'],
    children: [{ plural: 'devices', field: 'id_model' }],
  },
];

/** Finds a type by its plural, as in addresses. */
export function findType(plural: string): ResourceType | undefined {
  return resourceTypes.find((type) => type.plural === plural);
}

/** Finds the plural of the type that a field such as `id_group` refers to. */
export function referredType(field: string): string | undefined {
  if (field === 'device') return 'devices';
  return resourceTypes.find(({ name }) => field === `id_${name}`)?.plural;
}

/** The path of one object in the document of the interface. */
export function templateOf({ plural, name }: ResourceType): string {
  return `/${plural}/{${name}_id_developer}/`;
}

/** Counts objects of a type in words: "1 device", "2,000 devices". */
export function countOf({ name, title }: ResourceType, count: number): string {
  return `${formatNumber(count)} ${count === 1 ? name : title.toLowerCase()}`;
}

/** Fields that every stored object has. */
export interface StoredObject {
  id_developer: string;
  name: string;
  version: number;
  enabled?: boolean;
  [field: string]: unknown;
}

export const statuses = ['ok', 'no_data', 'no_status', 'disconnected'] as const satisfies Device['status'][];
export type DeviceStatus = Device['status'];

export const statusLabels: Readonly<Record<DeviceStatus, string>> = {
  ok: 'OK',
  no_data: 'Data late',
  no_status: 'Status late',
  disconnected: 'Disconnected',
};
