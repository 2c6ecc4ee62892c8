import type { ReactNode } from 'react';
import { useSession } from '../api/hooks.js';
import { useAddress } from './address.js';

export interface Tab {
  id: string;
  label: string;
  /** Names of this part in earlier addresses. */
  aliases?: readonly string[];
  /** Operation without which there is no such part. */
  needs?: readonly [method: string, path: string];
  render(): ReactNode;
}

/** Parts of a page; the address names the one that is shown, the first by default. */
export function Tabs({ tabs }: { tabs: readonly Tab[] }) {
  const [{ tab = '' }, , replaceSearch] = useAddress();
  const { can } = useSession();
  const allowed = tabs.filter(({ needs }) => needs === undefined || can(...needs));
  const shown = allowed.find(({ id, aliases }) => id === tab || aliases?.includes(tab)) ?? allowed[0];
  return (
    <>
      <nav className="row tabs" aria-label="Parts of this page">
        {allowed.map(({ id, label }, index) => (
          <button
            key={id}
            type="button"
            className="tab"
            aria-current={id === shown?.id ? 'page' : undefined}
            onClick={() => replaceSearch(index === 0 ? {} : { tab: id })}
          >
            {label}
          </button>
        ))}
      </nav>
      {shown?.render()}
    </>
  );
}
