import { type Query, request } from '../api/client.js';
import type { ListAnswer } from '../api/list-answer.js';
import type { StatusEvent } from './status-count.js';

const types = ['device.status_changed', 'device.created', 'device.deleted'];
const fields = 'id,at,type,id_developer,data.from,data.to';
const page_size = 1000;
/** Reading more would take seconds; the changes are not shown then. */
const max_events = 20_000;
/** Smaller than every id. */
const first_id = '0'.repeat(18);

/** Events of one type each, oldest first; null: too many to read. */
export type StatusEvents = readonly (readonly StatusEvent[])[] | null;

/** Reads the events since a time that change statuses, without those that were read earlier. */
export async function loadStatusEvents(
  at_from: number,
  earlier: StatusEvents | undefined,
  signal: AbortSignal,
): Promise<StatusEvents> {
  const read = (query: Query) =>
    request<ListAnswer<StatusEvent>>('GET', '/events/', {
      query: { at_from, fields, max: page_size, ...query },
      signal,
    });
  const pages = await Promise.all(
    types.map((type, index) => {
      const after = earlier?.[index]?.at(-1)?.id ?? first_id;
      return read({ type, after, ...(earlier === null && { max: 1 }) });
    }),
  );
  if (pages.reduce((sum, { total_documents }) => sum + total_documents, 0) > max_events) return null;
  if (earlier === null) return loadStatusEvents(at_from, undefined, signal);
  return Promise.all(
    pages.map(async ({ result }, index) => {
      const all = (earlier?.[index] ?? []).filter(({ at }) => at >= at_from).concat(result);
      for (let page = result; page.length === page_size; all.push(...page))
        page = (await read({ type: types[index], after: page.at(-1)?.id })).result;
      return all;
    }),
  );
}
