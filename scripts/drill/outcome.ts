/** Findings of a step of the drill. */
export interface Outcome {
  /** Counts that were compared, in words. */
  counted: string;
  /** Differences and failures, one line each. */
  faults: readonly string[];
}
