import { device, statusOf } from '../resources/device/index.js';
import type { ListedType } from '../schema/resource.js';
import type { Projection, Stored, Writer } from './printer.js';

/** What printing needs beyond the stored document. */
export interface ProjectionContext {
  /** Epoch seconds. */
  now: number;
  /** The properties of the models of the devices at hand: stored BSON by identifier. */
  modelProperties: ReadonlyMap<string, Uint8Array>;
}

const internal = ['_id', '__v', 'account', 'parent', 'marks'];
const deadlines = ['stream_due_at', 'status_due_at'] as const;

/** How objects of a type are shown: `list` leaves out what is too large for one. */
export function projectionOf(listed: ListedType, place: 'list' | 'object' = 'object'): Projection<ProjectionContext> {
  const hidden = new Set([
    ...internal,
    ...Object.keys(listed.hidden),
    ...(place === 'list' ? listed.omittedFromLists : []),
  ]);
  if (listed !== device) return { element: listed.name, hidden };
  const computed = new Set(['id_model', 'properties', 'location', ...deadlines]);
  for (const key of computed) hidden.delete(key);
  return { element: listed.name, hidden, computed, printComputed: finishDevice };
}

function finishDevice(stored: Stored, out: Writer, { now, modelProperties }: ProjectionContext): void {
  const id_model = stored.text('id_model');
  if (id_model !== undefined) out.member('id_model', id_model);
  out.merged(
    'properties',
    id_model === undefined ? undefined : modelProperties.get(id_model),
    stored.raw('properties')?.bytes,
  );
  const lon = stored.number('location', 'coordinates', '0');
  const lat = stored.number('location', 'coordinates', '1');
  if (lon !== undefined && lat !== undefined) {
    out.member('lon', lon);
    out.member('lat', lat);
  }
  for (const key of deadlines) {
    const due_at = stored.number(key) ?? 0;
    if (due_at > 0) out.member(key, due_at);
  }
  out.member('status', statusOf(stored.number('stream_due_at') ?? 0, stored.number('status_due_at') ?? 0, now));
}
