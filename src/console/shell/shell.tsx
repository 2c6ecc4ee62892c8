import './shell.css';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { Link, Outlet, useLocation } from '@tanstack/react-router';
import { lazy, Suspense, useEffect, useMemo, useState } from 'react';
import { AlarmNotices } from '../alarms/notices.js';
import { createInterface, loadDocument } from '../api/document.js';
import { isWithoutAccess } from '../api/errors.js';
import { SessionContext, self_path, useGet, useSession } from '../api/hooks.js';
import type { Self } from '../api/interface.js';
import { dropKey, keyStore } from '../api/key-store.js';
import { signOut } from '../api/sign-in.js';
import { forgetVisited } from '../api/visited.js';
import { useStore } from '../lib/store.js';
import { Button, LinkButton, Menu } from '../ui/button.js';
import { Announcements, Failure, Loading, Page } from '../ui/page.js';
import { Downloads } from '../ui/progress.js';
import { ThemeChoice } from '../ui/theme.js';
import { ConnectionBanner } from './connection.js';
import { Navigation, Parts } from './navigation.js';
import { Search } from './search.js';

// whoever is signed in sees neither
const SignIn = lazy(async () => ({ default: (await import('./sign-in.js')).SignIn }));
const NoAccess = lazy(async () => ({ default: (await import('./issuer.js')).NoAccess }));
const scopesOfDevices: readonly string[] = ['stream', 'device'];

/** The frame of all views: without a valid key the sign-in, else navigation and the view. */
export function Shell() {
  const { key, tokens } = useStore(keyStore);
  const signed_in = key ?? tokens?.session;
  const queryClient = useQueryClient();
  useEffect(() => {
    if (signed_in !== undefined) return;
    queryClient.clear();
    forgetVisited();
  }, [signed_in, queryClient]);
  return (
    <>
      <Suspense>{signed_in === undefined ? <SignIn /> : <SignedIn key={signed_in} />}</Suspense>
      <div className="notices">
        <Downloads />
        <Announcements />
      </div>
    </>
  );
}

function SignedIn() {
  const document = useQuery({
    queryKey: ['openapi.json'],
    queryFn: ({ signal }) => loadDocument(signal),
    staleTime: 'static',
  });
  const self = useGet<Self>(self_path, {}, { enabled: document.data !== undefined, isStatic: true });
  const session = useMemo(
    () => document.data && self.data && { ...createInterface(document.data, self.data), self: self.data },
    [document.data, self.data],
  );
  const failed = [document, self].find(({ error }) => error !== null);
  if (failed && isWithoutAccess(failed.error)) return <NoAccess />;
  if (failed)
    return (
      <main className="stack sign-in">
        <Page title="Signing in has failed">
          <Failure error={failed.error} onRetry={() => void failed.refetch()} />
          <Button label="Use another key" onClick={() => dropKey()} />
        </Page>
      </main>
    );
  if (session === undefined) return <Loading height="100vh" />;
  if (scopesOfDevices.includes(session.self.scope)) return <KeyOfDevice self={session.self} />;
  return (
    <SessionContext value={session}>
      <Frame />
    </SessionContext>
  );
}

function Frame() {
  const { pathname } = useLocation();
  const { self } = useSession();
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
        <Link to="/" className="row brand" activeOptions={{ exact: true }} aria-label="Device platform">
          <svg aria-hidden="true" width="22" height="22" viewBox="0 0 22 22" fill="none" stroke="currentColor">
            <rect x="6" y="6" width="10" height="10" rx="2" strokeWidth="2" />
            <path d="M9 1v4m4-4v4M9 17v4m4-4v4M1 9h4m-4 4h4M17 9h4m-4 4h4" strokeWidth="1.8" strokeLinecap="round" />
          </svg>
          <span className="brand-name">Device platform</span>
        </Link>
        <Search />
        <ThemeChoice />
        <Menu label={self.username}>
          <p className="muted">
            Scope of the key: <strong>{self.scope}</strong>
          </p>
          <LinkButton to="/about" label="About" />
          <Button label="Sign out" onClick={() => void signOut()} />
        </Menu>
      </header>
      <Navigation />
      <main id="main" tabIndex={-1}>
        <Parts />
        <Outlet />
      </main>
      <ConnectionBanner />
      <AlarmNotices />
    </div>
  );
}

/** Says what a key is for that can read no list, in place of views that would all fail. */
function KeyOfDevice({ self: { scope, id_device } }: { self: Self }) {
  return (
    <main className="stack sign-in">
      <Page title={scope === 'device' ? 'A key of a device' : 'A key for sending'}>
        <p>
          {scope === 'device'
            ? `This key is for the device ${id_device}: it sends its streams, and reads its state, commands and configuration files.`
            : 'This key is for devices and programs that send streams, and can read nothing.'}
        </p>
        <p>The console needs a key of the scope read, write or admin.</p>
        <Button label="Use another key" kind="primary" onClick={() => void signOut()} />
      </Page>
    </main>
  );
}
