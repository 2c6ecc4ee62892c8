import { type Query, request } from './client.js';
import type { ListAnswer } from './list-answer.js';
import { countStatusChanges, type StatusChanges, type StatusEvent } from './status-count.js';

const types = ['device.status_changed', 'device.created', 'device.deleted'];
const fields = 'id,type,id_developer,data.from,data.to';
const page_size = 1000;
/** Reading more would take seconds; the changes are not shown then. */
const max_events = 20_000;
/** Smaller than every id. */
const first_id = '0'.repeat(18);

/** Reads how many devices have come to each status, and left it, since a time. @returns undefined for too many events */
export async function loadStatusChanges(at_from: number, signal: AbortSignal): Promise<StatusChanges | undefined> {
  const read = (query: Query) =>
    request<ListAnswer<StatusEvent>>('GET', '/events/', { query: { ...query, at_from, fields }, signal });
  const begins = await Promise.all(types.map((type) => read({ type, after: first_id, max: page_size })));
  const total = begins.reduce((sum, { total_documents }) => sum + total_documents, 0);
  if (total > max_events) return undefined;
  const events = await Promise.all(
    begins.map(async ({ result }, index) => {
      const found = [...result];
      for (let page = result; page.length === page_size; ) {
        page = (await read({ type: types[index], after: page.at(-1)?.id, max: page_size })).result;
        found.push(...page);
      }
      return found;
    }),
  );
  return countStatusChanges(events.flat());
}
