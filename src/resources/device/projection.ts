import type { ComputedMembers } from '../../schema/projection.js';
import { deadlineKinds, statusOf } from './status.js';

const deadlines = deadlineKinds.map((kind) => `${kind}_due_at`);

/** `lon`, `lat`, `properties`, the deadlines and `status`, as clients see them (contract 4, 5 and 8). */
export const computedMembers: ComputedMembers = {
  from: new Set(['id_model', 'properties', 'location', ...deadlines]),
  print(stored, out, { now, inherited }) {
    const id_model = stored.text('id_model');
    if (id_model !== undefined) out.member('id_model', id_model);
    const ofModel = id_model === undefined ? undefined : inherited.get(id_model);
    out.merged('properties', ofModel, stored.raw('properties')?.bytes);
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
  },
};
