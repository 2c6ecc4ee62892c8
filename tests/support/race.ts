import { setImmediate as nextTurn } from 'node:timers/promises';

interface RaceRounds<Outcome> {
  count: number;
  /** Rounds at the same time. */
  concurrent: number;
  /** True once the rounds prove something: a race that one side always wins does not. Default: always true. */
  until?: ((seen: ReadonlySet<Outcome>) => boolean) | undefined;
}

/**
 * Runs rounds of requests that race. Beside busy neighbours one side may win `count` of them: then as many follow again, at
 * most five times, in which leads have to be multiplied by `spread`, which is 1, then 4, 16 and so on.
 * @param round resolves to its outcome, or to several
 */
export async function runRounds<Outcome>(
  { count, concurrent, until = () => true }: RaceRounds<Outcome>,
  round: (index: number, spread: number) => Promise<Outcome | readonly Outcome[]>,
): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  for (let series = 0; series <= 5; series++) {
    const end = (series + 1) * count;
    for (let begun = series * count; begun < end; begun += concurrent) {
      const length = Math.min(concurrent, end - begun);
      const batch = Array.from({ length }, (_, offset) => round(begun + offset, 4 ** series));
      outcomes.push(...((await Promise.all(batch)).flat() as Outcome[]));
    }
    if (until(new Set(outcomes))) break;
  }
  return outcomes;
}

/** Returns by how many turns of the event loop one request of a round starts before the other: from 40 to -40 times `spread`. */
export const leadOf = (index: number, spread: number): number => 4 * spread * (10 - (index % 21));

/** Calls `act` after some turns of the event loop; at once for a negative number. */
export async function startLate<Result>(turns: number, act: () => Promise<Result>): Promise<Result> {
  for (let turn = 0; turn < turns; turn++) await nextTurn();
  return act();
}
