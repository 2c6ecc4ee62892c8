import { useParams } from '@tanstack/react-router';
import type { ComponentType, ReactNode } from 'react';
import { useSession } from '../api/queries.js';
import { findType, type ResourceType } from '../resources.js';
import { NotFound } from './not-found.js';

/** Wraps a view of one type: the first segment of the address names the type. */
export function forType(View: ComponentType<{ type: ResourceType; id: string }>): () => ReactNode {
  return function TypedView() {
    const { plural = '', id = '' } = useParams({ strict: false }) as { plural?: string; id?: string };
    const type = findType(plural);
    return type === undefined ? <NotFound /> : <View key={`${plural}/${id}`} type={type} id={id} />;
  };
}

/** Wraps a view that needs an operation: without it, or without the scope for it, there is no such page. */
export function forOperation(method: string, path: string, View: ComponentType): () => ReactNode {
  return function AllowedView() {
    return useSession().can(method, path) ? <View /> : <NotFound />;
  };
}
