/** A condition on a value of a path that is one key. */
export interface ModelCondition {
  path: string;
  op: '>' | '>=' | '<' | '<=' | '=' | '!=';
  value: unknown;
  clear?: number;
}

export interface ModelRule {
  name: string;
  conditions: readonly ModelCondition[];
  match: 'all' | 'any';
}

export interface ModelStream {
  at: number;
  data: Readonly<Record<string, unknown>>;
}

export type Transition = 'raised' | 'acknowledged' | 'closed';

/** State of a rule at one device. */
interface RuleState {
  met: boolean[];
  /** The state of the last alarm while it holds; a closed one waits for the next stream. */
  alarm: 'none' | 'active' | 'acknowledged' | 'closed';
  transitions: Transition[];
}

/** The rules of one device, as reference/alarms.md#evaluation describes them. */
export interface DeviceModel {
  /** A request was acknowledged. */
  receive(streams: readonly ModelStream[]): void;
  /** A person acknowledges or closes the open alarm of a rule. @returns false if there is none to change */
  change(rule: string, state: 'acknowledged' | 'closed'): boolean;
  transitionsOf(rule: string): readonly Transition[];
  isOpen(rule: string): boolean;
}

/** Creates the model of a device that has sent nothing. */
export function createDeviceModel(rules: readonly ModelRule[]): DeviceModel {
  const last = new Map<string, { at: number; value: unknown }>();
  const states = new Map(
    rules.map(({ name, conditions }): [string, RuleState] => [
      name,
      { met: conditions.map(() => false), alarm: 'none', transitions: [] },
    ]),
  );
  const stateOf = (rule: string): RuleState => {
    const state = states.get(rule);
    if (state === undefined) throw new Error(`there is no rule ${rule}`);
    return state;
  };
  const isOpen = (rule: string) => ['active', 'acknowledged'].includes(stateOf(rule).alarm);
  return {
    receive(streams) {
      const renewed = new Set<string>();
      for (const { at, data } of streams)
        for (const [path, value] of Object.entries(data)) {
          const known = last.get(path);
          if (known !== undefined && at < known.at) continue;
          last.set(path, { at, value });
          renewed.add(path);
        }
      for (const rule of rules) look(rule, stateOf(rule.name), last, renewed);
    },
    change(rule, to) {
      const state = stateOf(rule);
      if (!isOpen(rule) || state.alarm === to) return false;
      state.alarm = to;
      state.transitions.push(to);
      return true;
    },
    transitionsOf: (rule) => stateOf(rule).transitions,
    isOpen,
  };
}

function look(
  { conditions, match }: ModelRule,
  state: RuleState,
  last: ReadonlyMap<string, { value: unknown }>,
  renewed: ReadonlySet<string>,
): void {
  state.met = conditions.map((condition, index) => {
    const known = last.get(condition.path);
    return known !== undefined && isMet(condition, known.value, state.met[index] === true);
  });
  const holds = match === 'all' ? state.met.every(Boolean) : state.met.some(Boolean);
  const isOpen = state.alarm === 'active' || state.alarm === 'acknowledged';
  if (!holds) {
    if (isOpen) state.transitions.push('closed');
    state.alarm = 'none';
    return;
  }
  const isRenewed = state.alarm === 'closed' && conditions.some(({ path }) => renewed.has(path));
  if (state.alarm !== 'none' && !isRenewed) return;
  state.alarm = 'active';
  state.transitions.push('raised');
}

function isMet({ op, value, clear }: ModelCondition, last: unknown, wasMet: boolean): boolean {
  if (op === '=') return last === value;
  if (op === '!=') return last !== value;
  if (typeof last !== 'number' || typeof value !== 'number') return false;
  if (wasMet && clear !== undefined) return op.startsWith('>') ? last > clear : last < clear;
  if (op === '>') return last > value;
  if (op === '>=') return last >= value;
  return op === '<' ? last < value : last <= value;
}

/** Rules that random streams cross often: two thresholds, a text, and two conditions together. */
export const modelRules: readonly ModelRule[] = [
  { name: 'high', match: 'all', conditions: [{ path: 'bar', op: '>', value: 6, clear: 3 }] },
  { name: 'low', match: 'all', conditions: [{ path: 'bar', op: '<=', value: 2 }] },
  { name: 'text', match: 'all', conditions: [{ path: 'valve', op: '!=', value: 'shut' }] },
  {
    name: 'both',
    match: 'all',
    conditions: [
      { path: 'bar', op: '>=', value: 5, clear: 4 },
      { path: 'temp', op: '>', value: 5 },
    ],
  },
  {
    name: 'either',
    match: 'any',
    conditions: [
      { path: 'temp', op: '<', value: 2, clear: 4 },
      { path: 'valve', op: '=', value: 'open' },
    ],
  },
];

/** Makes a random request of one device: one stream or several, some late, some without a path or of another type. */
export function createRandomStreams(random: () => number, now: number): ModelStream[] {
  const pick = <T>(values: readonly T[]): T => values[Math.floor(random() * values.length)] as T;
  const count = random() < 0.8 ? 1 : 2 + Math.floor(random() * 3);
  return Array.from({ length: count }, () => ({
    at: now - (random() < 0.8 ? 0 : Math.floor(random() * 20)),
    data: {
      ...(random() < 0.8 && { bar: random() < 0.9 ? Math.floor(random() * 10) : pick([null, '9', true]) }),
      ...(random() < 0.4 && { temp: Math.floor(random() * 10) }),
      ...(random() < 0.3 && { valve: pick(['open', 'shut', 'ajar', null]) }),
    },
  }));
}
