import { createStore } from './store.js';

const shown_ms = 6000;

/** The messages that are shown now. */
export const announcements = createStore<readonly { id: number; text: string }[]>([]);

/** Shows a message for some seconds, and reads it out to screen readers. */
export function announce(text: string): void {
  const shown = announcements.read();
  const id = (shown.at(-1)?.id ?? 0) + 1;
  announcements.write([...shown, { id, text }]);
  setTimeout(() => announcements.write(announcements.read().filter((message) => message.id !== id)), shown_ms);
}
