import { Link, useLocation } from '@tanstack/react-router';
import { useSession } from '../api/hooks.js';
import { pageSettings } from '../api/page-settings.js';
import { config_counts_path } from '../device/config-rows.js';
import { LinkButton } from '../ui/button.js';

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
  const offered = views.flatMap((all) => {
    const parts = all.filter(isOffered);
    return parts.slice(0, 1).map((first) => ({ ...first, parts }));
  });
  const path = `/${pathname.split('/')[1] ?? ''}`;
  return { offered, path, shown: offered.find(({ parts }) => parts.some(({ to }) => to === path)), pathname };
}

/** The entries of the navigation. */
export function Navigation() {
  const { offered, shown } = useViews();
  return (
    <nav id="navigation" aria-label="Views" className="side">
      <ul>
        {offered.map((view) => (
          <li key={view.to}>
            <Link
              to={view.to}
              className="row"
              activeOptions={{ exact: true, includeSearch: false }}
              aria-current={view === shown ? 'page' : undefined}
            >
              <svg aria-hidden="true" width="16" height="16" viewBox="0 0 16 16" fill="none" stroke="currentColor">
                <path d={icons.get(view.to)} strokeWidth="1.3" strokeLinecap="round" strokeLinejoin="round" />
              </svg>
              {view.label}
            </Link>
          </li>
        ))}
      </ul>
    </nav>
  );
}

/** The parts of the entry that is shown, above its lists. */
export function Parts() {
  const { shown, path, pathname } = useViews();
  if (shown === undefined || shown.parts.length < 2 || pathname !== path) return null;
  return (
    <nav className="row tabs" aria-label="Parts of this view">
      {shown.parts.map(({ to, label }) => (
        <LinkButton key={to} to={to} label={label} kind="tab" activeOptions={{ includeSearch: false }} />
      ))}
    </nav>
  );
}

/** Lines on a field of 16 by 16, by the first address of a view. */
const icons: ReadonlyMap<string, string> = new Map([
  ['/', 'M2 2h5v5H2zM9 2h5v5H9zM2 9h5v5H2zM9 9h5v5H9z'],
  ['/hierarchy', 'M6 2h4v3H6zM2 11h4v3H2zM10 11h4v3h-4zM8 5v3M4 11V8h8v3'],
  ['/map', 'M8 14s5-4.5 5-8A5 5 0 0 0 3 6c0 3.5 5 8 5 8zM6.5 6h3M8 4.5v3'],
  ['/devices', 'M4 4h8v8H4zM6 1v3M10 1v3M6 12v3M10 12v3M1 6h3M1 10h3M12 6h3M12 10h3'],
  ['/models', 'M3 2h7l3 3v9H3zM6 8h4M6 11h4'],
  ['/configs', 'M3 2h6l4 4v8H3zM9 2v4h4M6 9h4M6 11.5h4'],
  ['/alarms', 'M4 11V7a4 4 0 0 1 8 0v4l1 1H3zM7 14h2'],
  ['/events', 'M5 4h9M5 8h9M5 12h9M2 4h1M2 8h1M2 12h1'],
  ['/webhooks', 'M9 2h5v5M14 2L7 9M11 9v5H2V5h5'],
  ['/connections', 'M5 2v4M11 2v4M3 6h10v2a5 5 0 0 1-10 0zM8 13v2'],
  ['/storage', 'M3 4c0-3 10-3 10 0v8c0 3-10 3-10 0zM3 4c0 3 10 3 10 0M3 8c0 3 10 3 10 0'],
  ['/apikeys', 'M10 2a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM7 9l-5 5M4 12l2 2'],
]);
