import { useIsFetching, useQuery, useQueryClient } from '@tanstack/react-query';
import { Outlet, useLocation } from '@tanstack/react-router';
import { type ReactNode, useEffect, useState, useSyncExternalStore } from 'react';
import { Link } from '../address.js';
import { loadDocument } from '../api/document.js';
import { dropKey, listenToKey, readKey } from '../api/key-store.js';
import { SessionContext, scope_query, useSession } from '../api/queries.js';
import { findScope } from '../api/session.js';
import { Announcements, Failure, Loading } from '../components/feedback.js';
import { Page } from '../components/page.js';
import { Downloads } from '../components/progress.js';
import { ThemeChoice } from '../components/theme.js';
import { resourceTypes } from '../resources.js';
import { ConnectionBanner } from './connection.js';
import { SignIn } from './sign-in.js';

/** The frame of all views: without a valid key the sign-in, else navigation and the view. */
export function Shell() {
  const key = useSyncExternalStore(listenToKey, readKey);
  const queryClient = useQueryClient();
  useEffect(() => {
    if (key === undefined) queryClient.clear();
  }, [key, queryClient]);
  return (
    <>
      {key === undefined ? <SignIn /> : <SignedIn key={key} apikey={key} />}
      <div className="notices">
        <Downloads />
        <Announcements />
      </div>
    </>
  );
}

function SignedIn({ apikey }: { apikey: string }) {
  const document = useQuery({
    queryKey: ['openapi.json'],
    queryFn: ({ signal }) => loadDocument(signal),
    staleTime: Number.POSITIVE_INFINITY,
  });
  const scope = useQuery({
    queryKey: [scope_query, apikey],
    queryFn: ({ signal }) => findScope(signal),
    enabled: document.data !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
  });
  const error = document.error ?? scope.error;
  if (error)
    return (
      <main className="sign-in">
        <Page title="Signing in has failed">
          <Failure error={error} onRetry={() => void (document.error ? document.refetch() : scope.refetch())} />
          <button type="button" onClick={() => dropKey()}>
            Use another key
          </button>
        </Page>
      </main>
    );
  if (document.data === undefined || scope.data === undefined) return <Loading height="100vh" />;
  return (
    <SessionContext value={{ document: document.data, scope: scope.data }}>
      <Frame />
    </SessionContext>
  );
}

function Frame() {
  const { pathname } = useLocation();
  const [isOpen, setOpen] = useState(false);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the menu closes when the view changes
  useEffect(() => setOpen(false), [pathname]);
  return (
    <div className={isOpen ? 'frame open' : 'frame'}>
      <a className="skip" href="#main">
        Skip to content
      </a>
      <header className="top">
        <button
          type="button"
          className="quiet menu"
          aria-expanded={isOpen}
          aria-controls="navigation"
          onClick={() => setOpen(!isOpen)}
        >
          <span aria-hidden="true">☰</span>
          <span className="hidden">Menu</span>
        </button>
        <Link to="/" className="brand" exact>
          Device platform
        </Link>
        <Activity />
        <ThemeChoice />
        <button type="button" onClick={() => dropKey()}>
          Sign out
        </button>
      </header>
      <Navigation />
      <main id="main" tabIndex={-1}>
        <ScopeGate>
          <Outlet />
        </ScopeGate>
      </main>
      <ConnectionBanner />
    </div>
  );
}

/** Shows that something is being read, without moving anything. */
function Activity() {
  const count = useIsFetching();
  return <span className={count > 0 ? 'activity busy' : 'activity'} aria-hidden="true" />;
}

function ScopeGate({ children }: { children: ReactNode }) {
  const { scope } = useSession();
  if (scope !== 'stream') return children;
  return (
    <div className="failure" role="alert">
      <p>This key can only send streams: it is the kind of key to put into a device. Sign in with another one.</p>
    </div>
  );
}

function Navigation() {
  const { can, scope } = useSession();
  const allowed = (path: string, to: string, label: string) =>
    can('GET', path) ? [<NavLink key={to} to={to} label={label} />] : [];
  return (
    <nav id="navigation" aria-label="Views" className="side">
      <ul>
        <NavLink to="/" label="Overview" exact />
        <NavLink to="/hierarchy" label="Hierarchy" />
        <NavLink to="/map" label="Map" />
      </ul>
      <h2>Lists</h2>
      <ul>
        {resourceTypes.map(({ plural, title }) => (
          <NavLink key={plural} to={`/${plural}`} label={title} />
        ))}
        {allowed('/streams/', '/streams', 'Streams')}
      </ul>
      <h2>Operation</h2>
      <ul>
        {allowed('/events/', '/events', 'Events')}
        {allowed('/webhooks/', '/webhooks', 'Webhooks')}
        {can('POST', '/import/') && <NavLink to="/import" label="Import" />}
        {allowed('/external/{provider}/user/{username}/', '/storage', 'Linked storage')}
        {allowed('/apikeys/', '/apikeys', 'API keys')}
        <NavLink to="/about" label="About" />
      </ul>
      <p className="muted">
        Scope of the key: <strong>{scope}</strong>
      </p>
    </nav>
  );
}

function NavLink({ to, label, exact = false }: { to: string; label: string; exact?: boolean }) {
  return (
    <li>
      <Link to={to} exact={exact}>
        {label}
      </Link>
    </li>
  );
}
