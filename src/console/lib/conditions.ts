type Condition = Readonly<Record<string, unknown>>;

/** Describes a condition of an alarm rule in a few words, such as "bar > 8". */
export function describeCondition({ path, op, value, clear, status, absent, minutes }: Condition): string {
  if (Array.isArray(status)) return `status is ${status.join(' or ')}`;
  if (absent !== undefined) return `no ${absent} for ${minutes} min`;
  const end = clear === undefined ? '' : `, until ${clear}`;
  return `${path} ${op} ${typeof value === 'string' ? JSON.stringify(value) : value}${end}`;
}
