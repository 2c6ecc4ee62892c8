/** A value that devices of a model send, as the model describes it. */
export interface Measure {
  path: string;
  name?: string;
  unit?: string;
  decimals?: number;
  type?: 'number' | 'text' | 'boolean';
  min?: number;
  max?: number;
  /** Lists of devices are filtered and sorted by it. */
  filter?: boolean;
}
