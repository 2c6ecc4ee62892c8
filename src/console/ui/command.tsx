import './command.css';
import { announce } from '../lib/announcements.js';
import { Button } from './button.js';

/** A command or a secret, with a button that copies it. */
export function Command({ text }: { text: string }) {
  return (
    <div className="command">
      <pre>{text}</pre>
      <Button onClick={() => copy(text)}>Copy</Button>
    </div>
  );
}

/** The clipboard is there for secure origins only: https, or this machine. */
export async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    announce('Copied.');
  } catch {
    announce('The browser does not let this page copy: select the text instead.');
  }
}
