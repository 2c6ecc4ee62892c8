/** What a step of the drill found. */
export interface Outcome {
  /** What was counted and compared, in words. */
  counted: string;
  /** What should not have happened. */
  faults: readonly string[];
}
