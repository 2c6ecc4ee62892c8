import { flag, recordedTime } from '../../schema/fields/number.js';
import { choice } from '../../schema/fields/text.js';
import { type Fields, optional, required, type Values, withDocumentation } from '../../schema/fields.js';
import type { Conditions, Filter } from '../../schema/filters.js';

/** The values of `status`, in the order of lists sorted by it. */
export const statuses = ['ok', 'no_data', 'no_status', 'disconnected'] as const;

/** Describes `status`, as a field and as a filter. */
export const statusMeaning =
  '`ok`: data and status streams are in time; `no_data`, `no_status`: one kind is late; `disconnected`: both are.';

export type Status = (typeof statuses)[number];

/** Each kind of stream has a deadline of its own: the time at which the next one is overdue. */
export const deadlineKinds = ['stream', 'status'] as const;
export type DeadlineKind = (typeof deadlineKinds)[number];

/**
 * A device is late once its next stream is overdue (reference/devices.md#status). Deadlines in epoch seconds, 0 before
 * the first stream.
 */
export function statusOf(streamDueAt: number, statusDueAt: number, now: number): Status {
  return deriveStatus(streamDueAt <= now, statusDueAt <= now);
}

/** The status of a device by the kinds of streams that are late. */
export function deriveStatus(isStreamLate: boolean, isStatusLate: boolean): Status {
  if (isStreamLate) return isStatusLate ? 'disconnected' : 'no_data';
  return isStatusLate ? 'no_status' : 'ok';
}

/**
 * Bounds of the deadlines: the deadlines themselves move too often to be indexed
 * (docs/decisions/0009-status-from-deadlines.md).
 */
export const deadlineBounds: Fields = {
  stream_safe_until: required(recordedTime()),
  status_safe_until: required(recordedTime()),
  stream_late_from: required(recordedTime()),
  status_late_from: required(recordedTime()),
};

/** The state that the event log has last reported (reference/events.md#status-changes). */
export const reportedState: Fields = {
  stream_late: required(flag()),
  status_late: required(flag()),
  /** The deadlines whose passing was reported. */
  stream_missed_at: optional(recordedTime()),
  status_missed_at: optional(recordedTime()),
};

/** Conditions for a status; exact once `refreshBounds` has run for `now` (epoch seconds). */
export function buildStatusConditions(status: Status, now: number): Conditions {
  return {
    stream_safe_until: { [status === 'ok' || status === 'no_status' ? '$gt' : '$lte']: now },
    status_safe_until: { [status === 'ok' || status === 'no_data' ? '$gt' : '$lte']: now },
  };
}

export const byStatus: Filter = {
  params: {
    status: withDocumentation(choice(...statuses), {
      about: `Only devices in this state. ${statusMeaning}`,
      example: 'ok',
    }),
  },
  index: { paths: ['stream_safe_until', 'status_safe_until'], trailingPaths: ['stream_late_from'] },
  conditions: ({ status }, now) => buildStatusConditions(status as Status, now),
  grouping: {
    name: 'status',
    paths: ['stream_safe_until', 'status_safe_until'],
    partition: (now) => new Map(statuses.map((status) => [status, buildStatusConditions(status, now)])),
    buildExpression(now) {
      const isLate = (kind: DeadlineKind) => ({ $lte: [`$${kind}_safe_until`, now] });
      const choose = (isStreamLate: boolean) => ({
        $cond: [isLate('status'), deriveStatus(isStreamLate, true), deriveStatus(isStreamLate, false)],
      });
      return { $cond: [isLate('stream'), choose(true), choose(false)] };
    },
  },
};

/**
 * Devices with at least one stream of the kind (reference/devices.md#filters): other devices have no deadline. `str`
 * uses the index of `byStatus`, so this one holds the deadline of `sta` only.
 */
export const byStreamKind: Filter = {
  params: {
    _t: withDocumentation(choice('str', 'sta'), {
      about: 'Only devices that ever sent a data stream (`str`) or a status stream (`sta`).',
      example: 'str',
    }),
  },
  index: { paths: ['status_safe_until'], trailingPaths: ['status_late_from'], partialAbove: 0 },
  conditions: ({ _t }) => ({ [_t === 'str' ? 'stream_safe_until' : 'status_safe_until']: { $gt: 0 } }),
};

/** Sets the deadlines of a new device, which has not sent anything. */
export function initializeDeadlines(set: Values): void {
  for (const kind of deadlineKinds) {
    setDeadline(set, kind, 0, 0);
    set[`${kind}_late`] = true;
  }
}

/**
 * Moves the deadlines of `stored` to the frequencies in `set`, counted from the last receipt
 * (reference/devices.md#deadlines). The receipts are added to `precondition`: a stream may arrive before the write.
 */
export function rescheduleDeadlines(set: Values, precondition: Values, stored: Values): void {
  for (const kind of deadlineKinds) {
    const period_min = set[`frequency_${kind}`];
    const last_at = stored[`last_${kind}_at`];
    if (typeof period_min !== 'number') continue;
    precondition[`last_${kind}_at`] = last_at ?? null;
    if (typeof last_at === 'number') setDeadline(set, kind, last_at, period_min);
  }
}

/** @param last_at epoch seconds, 0 before the first stream */
function setDeadline(set: Values, kind: DeadlineKind, last_at: number, period_min: number): void {
  const due_at = last_at + period_min * 60;
  Object.assign(set, {
    [`${kind}_due_at`]: due_at,
    [`${kind}_safe_until`]: due_at,
    [`${kind}_late_from`]: due_at + period_min * 30,
  });
}
