import { useEffect, useState, useSyncExternalStore } from 'react';
import { Select } from './choice.js';

const item = 'device-platform.theme';
const choices = { system: 'Auto', light: 'Light', dark: 'Dark' };

const dark = matchMedia('(prefers-color-scheme: dark)');

/** Calls `listener` when the colours change, for what is not drawn by the style sheet. @returns a function that ends this */
function listenToScheme(listener: () => void): () => void {
  const observer = new MutationObserver(listener);
  observer.observe(document.documentElement, { attributeFilter: ['style'] });
  dark.addEventListener('change', listener);
  return () => {
    observer.disconnect();
    dark.removeEventListener('change', listener);
  };
}

function readScheme(): string {
  return document.documentElement.style.colorScheme || (dark.matches ? 'dark' : 'light');
}

/** Returns `light` or `dark`, as it is shown now. */
export function useScheme(): string {
  return useSyncExternalStore(listenToScheme, readScheme);
}

/** Chooses light, dark, or what the system prefers; the choice stays in this browser. */
export function ThemeChoice() {
  const [theme, setTheme] = useState(() => localStorage.getItem(item) ?? 'system');
  useEffect(() => {
    document.documentElement.style.colorScheme = theme === 'system' ? '' : theme;
    localStorage.setItem(item, theme);
  }, [theme]);
  return <Select aria-label="Colours" value={theme} options={Object.entries(choices)} onChange={setTheme} />;
}
