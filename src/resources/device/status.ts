import { choice } from '../../schema/fields.js';
import type { Conditions, Filter } from '../../schema/filters.js';

export const statuses = ['ok', 'no_data', 'no_status', 'disconnected'] as const;
export type Status = (typeof statuses)[number];

/** §3, contract 8: late is who has passed the time by which the next stream was due (epoch seconds, 0: never sent). */
export function statusOf(streamDueAt: number, statusDueAt: number, now: number): Status {
  if (streamDueAt > now) return statusDueAt > now ? 'ok' : 'no_status';
  return statusDueAt > now ? 'no_data' : 'disconnected';
}

/** What each kind of stream moves: its deadline and the bounds of that (docs/decisions.md 30). */
export const deadlineKinds = ['stream', 'status'] as const;
export type DeadlineKind = (typeof deadlineKinds)[number];

/** What means a status once `settleDeadlines` (`store/deadlines.ts`) has looked; `now` in epoch seconds. */
export function statusConditions(status: Status, now: number): Conditions {
  return {
    stream_safe_until: { [status === 'ok' || status === 'no_status' ? '$gt' : '$lte']: now },
    status_safe_until: { [status === 'ok' || status === 'no_data' ? '$gt' : '$lte']: now },
  };
}

export const byStatus: Filter = {
  params: { status: choice(...statuses) },
  index: { paths: ['stream_safe_until', 'status_safe_until'], trailingPaths: ['stream_late_from'] },
  conditions: ({ status }, now) => statusConditions(status as Status, now),
};

/**
 * Devices that have had at least one stream of the kind (contract 6): the others have no deadline. The index of the
 * status begins with that of `str`.
 */
export const byStreamKind: Filter = {
  params: { _t: choice('str', 'sta') },
  index: { paths: ['status_safe_until'], trailingPaths: ['status_late_from'], partialAbove: 0 },
  conditions: ({ _t }) => ({ [_t === 'str' ? 'stream_safe_until' : 'status_safe_until']: { $gt: 0 } }),
};
