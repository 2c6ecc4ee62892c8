import { useQueryClient } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import { describeError, isTemporary } from '../api/errors.js';

/**
 * Reports that requests fail because the service or its database is away, or overloaded, as long as one of them does.
 * Queries are repeated by themselves; the button repeats them at once.
 */
export function ConnectionBanner() {
  const queryClient = useQueryClient();
  const [error, setError] = useState<unknown>();
  useEffect(() => {
    const cache = queryClient.getQueryCache();
    return cache.subscribe(() => {
      const failing = cache
        .getAll()
        .filter((query) => query.isActive())
        .map(({ state }) => state.error ?? state.fetchFailureReason)
        .find(isTemporary);
      setError(failing ?? undefined);
    });
  }, [queryClient]);
  if (error === undefined) return null;
  return (
    <div role="alert" className="banner">
      <p>{describeError(error)} Trying again…</p>
      <button type="button" onClick={() => void queryClient.refetchQueries({ type: 'active' })}>
        Try now
      </button>
    </div>
  );
}
