import type { ComputedMembers } from '../../schema/projection.js';
import { deadlineKinds, statusOf } from './status.js';

const dueKeys = deadlineKinds.map((kind) => `${kind}_due_at`);

/** `lon`, `lat`, `properties`, the deadlines and `status`, as clients see them (reference/devices.md#fields). */
export const computedMembers: ComputedMembers = {
  from: new Set(['id_model', 'properties', 'location', ...dueKeys]),
  print(stored, out, { now, inherited }) {
    const id_model = stored.text('id_model');
    if (id_model !== undefined) out.member('id_model', id_model);
    const modelProperties = id_model === undefined ? undefined : inherited.get(id_model);
    out.merged('properties', modelProperties, stored.raw('properties')?.bytes);
    const lon = stored.number('location', 'coordinates', '0');
    const lat = stored.number('location', 'coordinates', '1');
    if (lon !== undefined && lat !== undefined) {
      out.member('lon', lon);
      out.member('lat', lat);
    }
    for (const key of dueKeys) {
      const due_at = stored.number(key) ?? 0;
      if (due_at > 0) out.member(key, due_at);
    }
    out.member('status', statusOf(stored.number('stream_due_at') ?? 0, stored.number('status_due_at') ?? 0, now));
  },
};

/** The same members, and always `id_group`, `id_asset`, `id_assets` and `id_model` (reference/access.md#former-clients). */
export const formerMembers: ComputedMembers = {
  from: new Set([...computedMembers.from, 'id_group', 'id_asset']),
  print(stored, out, context) {
    const id_asset = stored.text('id_asset') ?? null;
    out.member('id_group', stored.text('id_group') ?? null);
    out.member('id_asset', id_asset);
    out.member('id_assets', id_asset);
    computedMembers.print(stored, out, context);
    if (stored.text('id_model') === undefined) out.member('id_model', null);
  },
};
