import type { ReactNode } from 'react';
import { useAddress } from '../address.js';

export interface Tab {
  id: string;
  label: string;
  render(): ReactNode;
}

/** Parts of a page; the address names the one that is shown, the first by default. */
export function Tabs({ tabs }: { tabs: readonly Tab[] }) {
  const [search, , replaceSearch] = useAddress();
  const shown = tabs.find(({ id }) => id === search.tab) ?? tabs[0];
  return (
    <>
      <nav className="tabs" aria-label="Parts of this page">
        {tabs.map(({ id, label }, index) => (
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
