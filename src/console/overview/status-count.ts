import type { DeviceStatus } from '../api/resources.js';

/** An event about the status of a device, with the fields that are read here. */
export interface StatusEvent {
  id: string;
  /** Epoch seconds. */
  at: number;
  type: string;
  id_developer: string;
  data?: { from?: DeviceStatus; to?: DeviceStatus };
}

/** Devices that have a status now and had another one, or did not exist, at the beginning; and the reverse. */
export interface StatusChange {
  gained: number;
  lost: number;
}

export type StatusChanges = Readonly<Record<DeviceStatus, StatusChange>>;

/**
 * Compares the first and the last status of each device, so that one that has come back counts as unchanged. A device
 * begins as `disconnected`; what a deleted one was before its first event is unknown, and not counted.
 */
export function countStatusChanges(events: readonly StatusEvent[]): StatusChanges {
  const devices = new Map<string, { before: DeviceStatus | undefined; now: DeviceStatus | undefined }>();
  for (const { type, id_developer, data } of events.toSorted((left, right) => (left.id < right.id ? -1 : 1))) {
    const before = type === 'device.status_changed' ? data?.from : undefined;
    const now = type === 'device.created' ? 'disconnected' : type === 'device.deleted' ? undefined : data?.to;
    const device = devices.get(id_developer);
    if (device === undefined) devices.set(id_developer, { before, now });
    else device.now = now;
  }
  const none = () => ({ gained: 0, lost: 0 });
  const changes = { ok: none(), no_data: none(), no_status: none(), disconnected: none() };
  for (const { before, now } of devices.values()) {
    if (before === now) continue;
    if (now !== undefined) changes[now].gained++;
    if (before !== undefined) changes[before].lost++;
  }
  return changes;
}
