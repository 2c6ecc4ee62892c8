import { Link, useLocation } from '@tanstack/react-router';
import { pageSettings } from '../api/page-settings.js';
import { useSession } from '../api/session.js';
import { config_counts_path } from '../device/config-rows.js';
import { Icon } from './icons.js';

interface View {
  to: string;
  label: string;
  /** Path of the operation without which there is no such view. */
  needs?: string;
  /** Default: GET. */
  method?: string;
}

/** The navigation: each row is one entry with its parts, of which the first that the key may see stands for all. */
const views: readonly (readonly View[])[] = [
  [{ to: '/', label: 'Overview' }],
  [
    { to: '/hierarchy', label: 'Hierarchy' },
    { to: '/projects', label: 'Projects', needs: '/projects/' },
    { to: '/services', label: 'Services', needs: '/services/' },
    { to: '/groups', label: 'Groups', needs: '/groups/' },
    { to: '/assets', label: 'Assets', needs: '/assets/' },
  ],
  [
    { to: '/devices', label: 'Devices', needs: '/devices/' },
    { to: '/filters', label: 'Saved filters', needs: '/filters/' },
    { to: '/import', label: 'Import', needs: '/import/', method: 'POST' },
  ],
  [{ to: '/map', label: 'Map' }],
  [{ to: '/models', label: 'Models', needs: '/models/' }],
  [{ to: '/configs', label: 'Configuration files', needs: config_counts_path }],
  [
    { to: '/alarms', label: 'Alarms', needs: '/alarms/' },
    { to: '/alarmrules', label: 'Alarm rules', needs: '/alarmrules/' },
  ],
  [
    { to: '/events', label: 'Events', needs: '/events/' },
    { to: '/streams', label: 'Streams', needs: '/streams/' },
  ],
  [{ to: '/webhooks', label: 'Webhooks', needs: '/webhooks/' }],
  [{ to: '/connections', label: 'MQTT connections', needs: '/mqtt/connections/' }],
  [{ to: '/storage', label: 'Linked storage', needs: '/external/{provider}/user/{username}/' }],
  [{ to: '/apikeys', label: 'API keys', needs: '/apikeys/' }],
];

/** The entries with the parts that the key may see, and the one that is shown. */
function useViews() {
  const { can } = useSession();
  const { pathname } = useLocation();
  const isOffered = ({ to, needs, method = 'GET' }: View) =>
    (needs === undefined || can(method, needs)) && (to !== '/connections' || pageSettings.hasBroker);
  const offered = views.map((parts) => parts.filter(isOffered)).filter((parts) => parts.length > 0);
  const path = `/${pathname.split('/')[1] ?? ''}`;
  return { offered, path, shown: offered.find((parts) => parts.some(({ to }) => to === path)), pathname };
}

/** The entries of the navigation. */
export function Navigation() {
  const { offered, shown } = useViews();
  return (
    <nav id="navigation" aria-label="Views" className="side">
      <ul>
        {offered.map((parts) => (
          <NavLink key={parts[0]?.to} view={parts[0]} isShown={parts === shown} />
        ))}
      </ul>
    </nav>
  );
}

function NavLink({ view, isShown }: { view: View | undefined; isShown: boolean }) {
  if (view === undefined) return null;
  return (
    <li>
      <Link
        to={view.to}
        activeOptions={{ exact: true, includeSearch: false }}
        aria-current={isShown ? 'page' : undefined}
      >
        <Icon of={view.to} />
        {view.label}
      </Link>
    </li>
  );
}

/** The parts of the entry that is shown, above its lists. */
export function Parts() {
  const { shown = [], path, pathname } = useViews();
  if (shown.length < 2 || pathname !== path) return null;
  return (
    <nav className="row tabs" aria-label="Parts of this view">
      {shown.map(({ to, label }) => (
        <Link key={to} to={to} className="button tab" activeOptions={{ includeSearch: false }}>
          {label}
        </Link>
      ))}
    </nav>
  );
}
