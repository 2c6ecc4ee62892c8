import type { ReactNode } from 'react';
import type { Entry, Measure, Model } from '../api/resources.js';
import { normalizePath, valueAt } from '../lib/paths.js';
import { Time } from '../ui/value.js';
import { formatMeasured } from './measures.js';

/** A path with its measure in each model that has it. */
export type MeasuredPath = Measure & { ofModels: Map<unknown, Measure> };

/** Finds the paths of the measures of all models, those first that most models have. */
export function findMeasuredPaths(models: readonly Model[]): MeasuredPath[] {
  const paths = new Map<string, MeasuredPath>();
  for (const { id_developer, measures = [] } of models) {
    for (const measure of measures) {
      // a list of fields or columns cannot hold it
      if (measure.path.includes(',')) continue;
      const key = normalizePath(measure.path);
      const measured = paths.get(key) ?? { ...measure, ofModels: new Map() };
      measured.ofModels.set(id_developer, measure);
      paths.set(key, measured);
    }
  }
  return [...paths.values()].sort((left, right) => right.ofModels.size - left.ofModels.size);
}

/** The field of devices that shows the last value at the path. */
export const fieldOf = ({ path }: MeasuredPath) => `latest.${path}`;

/** The last value of a device at a path, with its age; nothing if the device has sent none. */
export function lastValueOf({ id_model, latest }: Entry, { ofModels, path, ...rest }: MeasuredPath): ReactNode {
  const { at, data } = (latest ?? {}) as { at?: number; data?: unknown };
  const value = valueAt(data, path);
  if (at === undefined || value === undefined) return undefined;
  return (
    <>
      {formatMeasured(value, ofModels.get(id_model) ?? rest)} <Time seconds={at} />
    </>
  );
}
