import { Link, useParams } from '@tanstack/react-router';
import type { ComponentType, ReactNode } from 'react';
import { useSession } from '../api/hooks.js';
import { findType, type ResourceType } from '../api/resources.js';
import { Page } from '../ui/page.js';

/** Wraps a view of one type that the key may list: the first segment of the address names the type. */
export function forType(View: ComponentType<{ type: ResourceType; id: string }>): () => ReactNode {
  return function TypedView() {
    const { plural = '', id = '' } = useParams({ strict: false });
    const { can } = useSession();
    const type = findType(plural);
    return type === undefined || !can('GET', type.list_path) ? (
      <NotFound />
    ) : (
      <View key={`${plural}/${id}`} type={type} id={id} />
    );
  };
}

/** Wraps the form for a new object of a type, for keys that may create one. */
export function forNew(View: ComponentType<{ type: ResourceType }>): () => ReactNode {
  return forType(function AllowedForm({ type }) {
    return useSession().can('POST', type.list_path) ? <View type={type} /> : <NotFound />;
  });
}

/** Wraps a view that needs an operation: without it, or without the scope for it, there is no such page. */
export function forOperation(method: string, path: string, View: ComponentType<{ id: string }>): () => ReactNode {
  return function AllowedView() {
    const { id = '' } = useParams({ strict: false });
    return useSession().can(method, path) ? <View id={id} /> : <NotFound />;
  };
}

export function NotFound() {
  return (
    <Page title="There is no such page">
      <p>
        <Link to="/">Overview</Link>
      </p>
    </Page>
  );
}
