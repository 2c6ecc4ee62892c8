import { type Query, request } from '../api/client.js';
import type { ListAnswer } from '../api/list-answer.js';
import { countStatusChanges, type StatusChanges, type StatusEvent } from './status-count.js';

const types = ['device.status_changed', 'device.created', 'device.deleted'];
const fields = 'id,type,id_developer,data.from,data.to';
const page_size = 1000;
/** Reading more would take seconds; the changes are not shown then. */
const max_events = 20_000;
/** Smaller than every id. */
const first_id = '0'.repeat(18);

/** Reads how many devices have come to each status, and left it, since a time. @returns null for too many events */
export async function loadStatusChanges(at_from: number, signal: AbortSignal): Promise<StatusChanges | null> {
  const read = (query: Query) =>
    request<ListAnswer<StatusEvent>>('GET', '/events/', {
      query: { ...query, at_from, fields, max: page_size },
      signal,
    });
  const firstPages = await Promise.all(types.map((type) => read({ type, after: first_id })));
  if (firstPages.reduce((sum, { total_documents }) => sum + total_documents, 0) > max_events) return null;
  const events = await Promise.all(
    firstPages.map(async ({ result }, index) => {
      const all = [...result];
      for (let page = result; page.length === page_size; all.push(...page))
        page = (await read({ type: types[index], after: page.at(-1)?.id })).result;
      return all;
    }),
  );
  return countStatusChanges(events.flat());
}
