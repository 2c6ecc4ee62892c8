import { addressOf, type Query } from '../api/client.js';
import { keyStore } from '../api/key-store.js';
import { quoteForShell } from '../lib/encode.js';
import { useStore } from '../lib/store.js';
import { Command } from './button.js';
import { DialogButton } from './dialog.js';

/** A request as a line for the shell shows it. */
export interface ShownCall {
  method: string;
  path: string;
  query?: Query;
  body?: unknown;
}

/** A button that shows a request as a line for the shell, which reads the credential from its environment. */
export function CurlButton({ callOf }: { callOf(): ShownCall }) {
  const hasToken = useStore(keyStore).tokens !== undefined;
  return (
    <DialogButton label="Show as curl">
      {() => (
        <div className="stack">
          <p>
            The {hasToken ? 'token' : 'key'} is not shown: <code>export {hasToken ? 'TOKEN' : 'KEY'}=…</code> comes
            first.
          </p>
          <Command text={curlOf(callOf(), hasToken)} />
        </div>
      )}
    </DialogButton>
  );
}

function curlOf({ method, path, query, body }: ShownCall, hasToken: boolean): string {
  const header = hasToken ? 'Authorization: Bearer $TOKEN' : 'service.apikey: $KEY';
  const words = [
    ...(method === 'GET' || (method === 'POST' && body !== undefined) ? [] : ['-X', method]),
    new URL(addressOf(path, query), location.origin).href,
    ...(body === undefined ? [] : ['-d', JSON.stringify(body)]),
  ];
  return `curl -H "${header}" ${words.map(quoteForShell).join(' ')}`;
}
