import { createAncestorNames } from '../objects/ancestors.js';
import type { Store } from '../objects/context.js';
import type { EvaluationDeps } from './evaluate.js';
import { createFactReader } from './fact-reader.js';
import { createMarker } from './marks.js';
import { createRecordBatches } from './record-batches.js';

/** Creates what all evaluations of a process share. @param clock epoch milliseconds */
export function createEvaluation(store: Store, clock: () => number): EvaluationDeps {
  const { db } = store;
  return {
    store,
    clock,
    nameAncestors: createAncestorNames(store),
    reader: createFactReader(db),
    records: createRecordBatches(db),
    setMark: createMarker(db),
  };
}
