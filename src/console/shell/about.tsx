import { useQuery } from '@tanstack/react-query';
import { useSession } from '../api/hooks.js';
import { pageSettings } from '../api/page-settings.js';
import { formatTime } from '../lib/format.js';
import { Facts, Page, Panel } from '../ui/page.js';

const refresh_ms = 5000;

/** The version of the service, its readiness, and the key. */
export function About() {
  const { version, self } = useSession();
  const { account, username, scope, expires_at } = self;
  const readiness = useQuery({
    queryKey: ['readyz'],
    // 503 while the service is not ready is an answer too
    queryFn: async ({ signal }) => {
      const { ok } = await fetch(`${pageSettings.prefix}/readyz`, { signal, cache: 'no-store' });
      return ok ? 'ready' : 'not ready';
    },
    refetchInterval: refresh_ms,
  });
  return (
    <Page title="About">
      <Panel title="Service">
        <Facts
          entries={[
            ['Version', version],
            ['Base address', location.origin + pageSettings.base],
            ['State', readiness.data ?? '…'],
            ['Account', account],
            ['User', username],
            ['Scope of the key', scope],
            ['Key expires', expires_at === undefined ? 'never' : formatTime(expires_at)],
          ]}
        />
        <p>
          <a href={`${pageSettings.prefix}/docs/`}>Description of the interface</a>
        </p>
      </Panel>
    </Page>
  );
}
