import { useQueryClient } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import { describeError, isTemporary } from '../api/errors.js';
import { Button } from '../ui/button.js';

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
      const active = cache.getAll().filter((query) => query.isActive());
      setError(active.map(({ state }) => state.error ?? state.fetchFailureReason).find(isTemporary) ?? undefined);
    });
  }, [queryClient]);
  if (error === undefined) return null;
  async function tryNow(): Promise<void> {
    // refetching alone leaves a query without data waiting for its next attempt
    await queryClient.cancelQueries({ type: 'active' });
    await queryClient.refetchQueries({ type: 'active' });
  }
  return (
    <div role="alert" className="row banner">
      <p>{describeError(error)} Trying again…</p>
      <Button label="Try now" onClick={tryNow} />
    </div>
  );
}
