import { gravityOf, type Severity } from '../resources/alarm-states.js';
import type { StoredEvent } from '../resources/event.js';
import { isEventSelected } from '../resources/webhook.js';
import type { SenderDeps } from './attempt.js';
import { openRun, type Parcel, readEventsAfter, saveCursor } from './deliveries.js';
import { limitText, max_title_length, writeKind } from './message.js';
import { sendAttempt } from './send-attempt.js';
import { refreshTarget, type WorkerState } from './worker-state.js';

const batch_size = 100;
/** Events of one digest; later ones are in the next. */
const max_digest_events = 100_000;

/** Place of a webhook in the log of events. */
interface Position {
  /** The last event that was read. */
  cursor: string;
  /** Collects the events since the last message. */
  digest: DigestCollector;
}

/** Sends new events one after the other in the order of the log, or joined into digests, until the worker is stopped. */
export async function sendNewEvents(state: WorkerState): Promise<void> {
  const { deps, target, news, stopped } = state;
  const { cursor, told_at, failing_since } = await openRun(deps.db, target);
  const position = { cursor, digest: createDigest(deps, target.account) };
  state.told_at = told_at;
  state.isCollecting = told_at !== undefined;
  state.isFailing ||= failing_since !== undefined;
  while (!stopped.signal.aborted) {
    if (isPaused(state)) await news.wait();
    else await sendNextEvents(state, position);
  }
}

/** Wakes the loop when the pause between two digests is over. */
export function endPause(state: WorkerState): void {
  if (state.isCollecting && !isPaused(state)) state.news.wake();
}

function isPaused({ told_at, target, deps }: WorkerState): boolean {
  return told_at !== undefined && told_at + target.digest_s > deps.clock() / 1000;
}

/** Sends or collects the next events in the log; waits for new ones at its end. */
async function sendNextEvents(state: WorkerState, position: Position): Promise<void> {
  const { stopped, news } = state;
  const isJoined = position.digest.count > 0 || (state.isCollecting && state.target.digest_s > 0);
  const events = await readNext(state, position.cursor);
  const selected = await selectEvents(state, events);
  // those of a worker that stops were not all compared
  if (stopped.signal.aborted) return;
  for (const event of selected) {
    if (isJoined) await position.digest.add(event);
    else await sendFirst(state, { event }, event._id);
    if (stopped.signal.aborted) return;
    position.cursor = event._id;
    if (isPaused(state)) return;
  }
  const isEnd = events.length < batch_size;
  await passEvents(state, position, { last: events.at(-1)?._id ?? position.cursor, isEnd });
  if (!isEnd || position.digest.count > 0 || isPaused(state)) return;
  state.isCollecting = false;
  await news.wait();
}

/** Moves on to the last event that was read, with the digest that is full or complete. */
async function passEvents(
  state: WorkerState,
  position: Position,
  { last, isEnd }: { last: string; isEnd: boolean },
): Promise<void> {
  const { deps, target } = state;
  const { digest, cursor } = position;
  if (digest.count > 0 && (isEnd || digest.count >= max_digest_events)) {
    await sendFirst(state, digest.take(), last);
    position.digest = createDigest(deps, target.account);
  } else if (digest.count === 0 && last !== cursor) await saveCursor(deps.db, target, last);
  position.cursor = last;
}

/** Reads the next events in the log. @returns none, with the loops ended, if the webhook was disabled or deleted */
function readNext(state: WorkerState, after: string): Promise<readonly StoredEvent[]> {
  const { deps, target } = state;
  return deps.costly.run(target.account, async () => {
    const unread = await readEventsAfter(deps.db, target.account, after, batch_size);
    // after the events: none of those that follow a change of the settings is sent by the former ones
    if (unread.length > 0) await refreshTarget(state);
    return unread;
  });
}

async function selectEvents(
  { deps, target, stopped }: WorkerState,
  events: readonly StoredEvent[],
): Promise<readonly StoredEvent[]> {
  const selected = events.filter((event) => isEventSelected(target, event));
  const { filter } = target;
  if (filter === undefined) return selected;
  const matching: StoredEvent[] = [];
  for (const event of selected) {
    if (stopped.signal.aborted) break;
    if (await deps.costly.run(target.account, () => deps.isSelectedByFilter(filter, event))) matching.push(event);
  }
  return matching;
}

async function sendFirst(state: WorkerState, parcel: Parcel, cursor: string): Promise<void> {
  const { deps } = state;
  state.pending = parcel.event._id;
  await sendAttempt(state, parcel, { number: 1, slots: deps.slots.first, cursor });
  state.pending = undefined;
  state.told_at = deps.clock() / 1000;
  state.isCollecting = true;
}

/** Collects what has happened since the last message into the next (reference/webhooks.md#digests). */
type DigestCollector = ReturnType<typeof createDigest>;

const max_lines = 20;
const max_kinds = 30;

/** Creates a collector for a webhook of an account. */
function createDigest({ describe, consoleUrl }: SenderDeps, account: string) {
  const kinds = new Map<string, { count: number; gravity: number; severity: string | undefined }>();
  const lines: string[] = [];
  let first: StoredEvent | undefined;
  let count = 0;
  let isOfAlarms = true;

  function write(): NonNullable<Parcel['digest']> {
    const sorted = [...kinds].sort(([, kind], [, other]) => other.gravity - kind.gravity || other.count - kind.count);
    const counts = sorted.map(([kind, { count: times }]) => `${times} × ${kind}`);
    const title = limitText(`${count} events: ${counts.join(', ')}`, max_title_length);
    const more = count > lines.length ? [`and ${count - lines.length} more`] : [];
    const base = consoleUrl();
    const link = base && `${base}${isOfAlarms ? '/alarms' : '/events'}`;
    const severity = sorted[0]?.[1].severity;
    const message = { title, lines: [...counts.slice(0, max_kinds), '', ...lines, ...more] };
    return { count, message: { ...message, ...(link && { link }), ...(severity && { severity }) } };
  }

  return {
    get count() {
      return count;
    },
    async add(event: StoredEvent): Promise<void> {
      first ??= event;
      count++;
      isOfAlarms &&= event.resource === 'alarm';
      const kind = writeKind(event);
      const { severity } = (event.data ?? {}) as { severity?: Severity };
      const gravity = severity === undefined ? -1 : gravityOf(severity);
      kinds.set(kind, { count: (kinds.get(kind)?.count ?? 0) + 1, gravity, severity });
      if (lines.length === max_lines) return;
      const { title } = await describe(account, event);
      lines.push(`${new Date(event.at * 1000).toISOString().slice(11, 16)} UTC ${title}`);
    },
    /** The next parcel, after at least one event: the event itself if it is the only one. */
    take(): Parcel {
      if (first === undefined) throw new Error('an empty digest');
      return count === 1 ? { event: first } : { event: first, digest: write() };
    },
  };
}
