import type { ProjectionContext } from '../schema/projection.js';
import type { ListedType } from '../schema/resource.js';
import type { Projection } from './printer.js';

/** `marks` was written by version 0.1.0; an instance of it may still run beside this one. */
const internal = ['_id', '__v', 'account', 'parent', 'last_request_id', 'marks'];

/** Which stored keys of a type are shown, hidden or computed; `list` leaves out what is too large for one. */
export function projectionOf(listed: ListedType, place: 'list' | 'object' = 'object'): Projection<ProjectionContext> {
  const { name: element, computed, omittedFromLists } = listed;
  const hidden = new Set([...internal, ...Object.keys(listed.hidden), ...(place === 'list' ? omittedFromLists : [])]);
  if (computed === undefined) return { element, hidden };
  for (const key of computed.from) hidden.delete(key);
  return { element, hidden, computed: computed.from, printComputed: computed.print };
}
