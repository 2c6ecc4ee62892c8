/** From the least severe on. */
export const severities = ['info', 'warning', 'critical'] as const;
export type Severity = (typeof severities)[number];

/** Number of a severity by which lists sort. */
export function gravityOf(severity: Severity): number {
  return severities.indexOf(severity);
}

/** The states of an alarm, from its beginning on. */
export const alarmStates = ['active', 'acknowledged', 'closed'] as const;
export type AlarmState = (typeof alarmStates)[number];

/** The states of an alarm that is open. */
export const openStates: readonly AlarmState[] = ['active', 'acknowledged'];
