/** One page of a list. */
export interface ListAnswer<T> {
  total_documents: number;
  result: T[];
}

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

/** The part of a model that describes its devices. */
export interface Model {
  id_developer: string;
  measures?: readonly Measure[];
  properties?: Readonly<Record<string, unknown>>;
  stream_retention_days?: number;
  summary_retention_days?: number;
}
