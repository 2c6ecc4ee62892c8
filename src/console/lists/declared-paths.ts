import { useMemo } from 'react';
import { useList, useModels } from '../api/hooks.js';
import type { Entry, Measure, Model } from '../api/resources.js';
import { findScalars, normalizePath } from '../lib/paths.js';

/** A path by which devices are filtered. */
export interface DeclaredPath {
  /** The path in its member, as parameters begin: `latest.bar`. */
  path: string;
  label: string;
  /** Undefined: any. */
  type?: Measure['type'];
  unit?: string;
}

/** Properties are looked for in so many devices. */
const sample = { fields: 'properties', max: 100 };
const typeNames: Readonly<Record<string, Measure['type']>> = { number: 'number', string: 'text', boolean: 'boolean' };

/** Reads the paths that models declare: filterable measures, and properties, also those of the first devices. */
export function useDeclaredPaths(): Readonly<Record<'measures' | 'properties', readonly DeclaredPath[]>> {
  const models = useModels({ enabled: true }).data?.result;
  const devices = useList<Entry>('/devices/', sample).data?.result;
  return useMemo(
    () => ({
      measures: findMeasures(models ?? []),
      properties: findProperties([...(models ?? []), ...(devices ?? [])].map((entry) => entry.properties)),
    }),
    [models, devices],
  );
}

function findMeasures(models: readonly Model[]): DeclaredPath[] {
  const paths = new Map<string, DeclaredPath>();
  for (const { path, name: label = path, type, unit, filter } of models.flatMap(({ measures = [] }) => measures)) {
    const key = normalizePath(path);
    if (filter && !paths.has(key))
      paths.set(key, { path: `latest.${path}`, label, ...(type && { type }), ...(unit && { unit }) });
  }
  return [...paths.values()];
}

function findProperties(objects: readonly unknown[]): DeclaredPath[] {
  const types = new Map<string, Measure['type']>();
  for (const { path, value } of objects.flatMap((object) => findScalars(object))) {
    const type = typeNames[typeof value];
    types.set(path, types.has(path) && types.get(path) !== type ? undefined : type);
  }
  return [...types]
    .map(([path, type]) => ({ path: `properties.${path}`, label: path, ...(type && { type }) }))
    .sort((left, right) => left.label.localeCompare(right.label));
}
