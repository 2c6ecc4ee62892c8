import { announce } from './feedback.js';

/** A command or a secret, with a button that copies it. */
export function Command({ text, label = 'Copy' }: { text: string; label?: string }) {
  return (
    <div className="command">
      <pre>{text}</pre>
      <button type="button" onClick={() => void copy(text)}>
        {label}
      </button>
    </div>
  );
}

/** The clipboard is there for secure origins only: https, or this machine. */
async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    announce('Copied.');
  } catch {
    announce('The browser does not let this page copy: select the text instead.');
  }
}
