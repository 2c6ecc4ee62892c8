import '../forms/form.css';
import { useEffect, useRef, useState } from 'react';
import { keyStore, storeKey } from '../api/key-store.js';
import { pageSettings } from '../api/page-settings.js';
import { Form, FormActions } from '../ui/button.js';
import { Page } from '../ui/page.js';
import { IssuerSignIn } from './issuer.js';

/** A key goes into a header, which holds no other characters. */
const keyPattern = /^[\x21-\x7e]+$/;

/** Asks for a key; the reason why the last one was dropped is shown above. */
export function SignIn() {
  const [key, setKey] = useState('');
  const [notice, setNotice] = useState(keyStore.read().notice);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.focus(), []);

  function submit(): void {
    const typed = key.trim();
    if (keyPattern.test(typed)) {
      storeKey(typed);
    } else {
      setNotice('A key has letters, digits and signs only.');
      input.current?.focus();
    }
  }

  return (
    <main className="stack sign-in">
      <Page title="Sign in">
        <p>The console of a device platform: fleets of devices, what they measure, and whether they are well.</p>
        {notice !== undefined && (
          <p role="alert" className="row failure">
            {notice}
          </p>
        )}
        <IssuerSignIn />
        <Form onSubmit={submit} className="form">
          <div className="field">
            <label htmlFor="key">API key</label>
            <input
              id="key"
              ref={input}
              type="password"
              autoComplete="off"
              spellCheck={false}
              value={key}
              onChange={({ target }) => setKey(target.value)}
              aria-describedby="key-help"
            />
            <p className="muted" id="key-help">
              The first start of the service prints one. It is kept until this tab is closed.
            </p>
          </div>
          <FormActions label="Sign in" />
        </Form>
        <p>
          <a href={`${pageSettings.prefix}/docs/`}>Description of the interface</a>
        </p>
      </Page>
    </main>
  );
}
