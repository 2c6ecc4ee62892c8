import { useMutation } from '@tanstack/react-query';
import { describeError } from '../api/errors.js';
import { pageSettings } from '../api/page-settings.js';
import { endOfSession, goToIssuer, signOut } from '../api/sign-in.js';
import { useStore } from '../lib/store.js';
import { Button } from '../ui/button.js';
import { Page } from '../ui/page.js';

/** Offers the sign-in at the issuer, if there is one, and after a sign-out the end of the session there. */
export function IssuerSignIn() {
  const leave = useMutation({ mutationFn: goToIssuer });
  const end_address = useStore(endOfSession);
  if (pageSettings.oidc === undefined) return null;
  const { host } = new URL(pageSettings.oidc.issuer);
  return (
    <div className="stack">
      {end_address !== undefined && (
        <p role="status">
          You are signed out here. Your session at {host} goes on: <a href={end_address}>sign out there, too</a>.
        </p>
      )}
      {leave.error && (
        <p role="alert" className="row failure">
          {host} cannot be used: {describeError(leave.error)}
        </p>
      )}
      {window.isSecureContext ? (
        <Button
          label={`Sign in with ${host}`}
          kind="primary"
          onClick={() => leave.mutate()}
          disabled={leave.isPending || leave.isSuccess}
        />
      ) : (
        <p>Signing in with {host} needs an https address of this page.</p>
      )}
      <p className="muted">Or with an API key:</p>
    </div>
  );
}

/** Says that the user who has signed in at the issuer has no access. */
export function NoAccess() {
  return (
    <main className="stack sign-in">
      <Page title="No access">
        <p>You are signed in, but your user has no access to this service. Its administrators can give it.</p>
        <Button label="Sign out" onClick={() => void signOut()} />
      </Page>
    </main>
  );
}
