import { gravityOf, type Severity } from '../resources/alarm-states.js';
import type { StoredEvent } from '../resources/event.js';
import type { SenderDeps } from './attempt.js';
import type { Parcel } from './deliveries.js';
import { limitText, max_title_length, writeKind } from './message.js';

/** Collects what has happened since the last message into the next (reference/webhooks.md#digests). */
export type DigestCollector = ReturnType<typeof createDigest>;

const max_lines = 20;
const max_kinds = 30;

/** Creates a collector for a webhook of an account. */
export function createDigest({ describe, consoleUrl }: SenderDeps, account: string) {
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
