import { useEffect, useState } from 'react';

const item = 'device-platform.theme';
const choices = { system: 'System', light: 'Light', dark: 'Dark' };

function readTheme(): string {
  const stored = localStorage.getItem(item) ?? 'system';
  return Object.hasOwn(choices, stored) ? stored : 'system';
}

/** Chooses light, dark, or what the system prefers; the choice stays in this browser. */
export function ThemeChoice() {
  const [theme, setTheme] = useState(readTheme);
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem(item, theme);
  }, [theme]);
  return (
    <select aria-label="Colours" className="theme" value={theme} onChange={({ target }) => setTheme(target.value)}>
      {Object.entries(choices).map(([value, label]) => (
        <option key={value} value={value}>
          {label}
        </option>
      ))}
    </select>
  );
}
