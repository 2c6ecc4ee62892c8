import type { DeviceStatus, StoredObject } from '../api/resources.js';
import { formatDuration } from '../lib/format.js';

/** A device whose data may be late. */
export interface LateDevice extends StoredObject {
  status: DeviceStatus;
  id_group?: string;
  id_asset?: string;
  /** Absent: it has never sent data. */
  stream_due_at?: number;
}

/** Late devices of one place with one status, late since about the same time or without ever having sent data. */
export interface LateGroup {
  key: string;
  devices: LateDevice[];
  /** The field that names the place, and its identifier. */
  field: 'id_group' | 'id_asset';
  place: string;
  status: DeviceStatus;
  since: number | undefined;
}

/** Groups late devices that would be equal rows, in their order. */
export function groupLateDevices(devices: readonly LateDevice[], now_s: number): LateGroup[] {
  const groups = new Map<string, LateGroup>();
  for (const device of devices) {
    const { status, id_asset, id_group = '', stream_due_at: since } = device;
    if (since !== undefined && since > now_s) continue;
    const place = id_asset ?? id_group;
    const key = JSON.stringify([status, place, since === undefined ? '' : formatDuration(now_s - since)]);
    const group = groups.get(key);
    if (group !== undefined) group.devices.push(device);
    else {
      const field = id_asset === undefined ? 'id_group' : 'id_asset';
      groups.set(key, { key, devices: [device], field, place, status, since });
    }
  }
  return [...groups.values()];
}
