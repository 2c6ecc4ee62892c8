import { isElementName } from '../schema/xml-names.js';
import { createEscapes } from './escapes.js';
import { Writer } from './writer.js';

const prolog = '<?xml version="1.0" encoding="UTF-8"?>';
const replacement = '\uFFFD';

function escapeText(text: string): string | undefined {
  if (text === '&') return '&amp;';
  if (text === '<') return '&lt;';
  if (text === '>') return '&gt;';
  if (text === '\r') return '&#13;'; // a parser reads a bare one as \n
  return text < ' ' && text !== '\t' && text !== '\n' ? replacement : undefined;
}

function escapeAttribute(text: string): string | undefined {
  if (text === '"') return '&quot;';
  if (text === '\t') return '&#9;';
  if (text === '\n') return '&#10;';
  return escapeText(text);
}

const textEscapes = createEscapes(escapeText, replacement);
const attributeEscapes = createEscapes(escapeAttribute, replacement);

const nowhere = -1;

/** Writes XML (reference/requests.md#xml). */
export class XmlWriter extends Writer {
  /** Position after the tag opened last: an element that is closed there is empty. */
  #contentStart = nowhere;

  override take(): Buffer {
    this.#contentStart = nowhere;
    return super.take();
  }

  openRoot(name: Buffer): void {
    this.writeAscii(prolog);
    this.openNamed(name);
  }

  openMember(source: Uint8Array, start: number, end: number): boolean {
    const named = isElementName(source, start, end);
    if (named) {
      this.reserve(end - start + 1);
      this.bytes[this.length++] = 0x3c;
      this.copy(source, start, end);
      this.writeAscii('>');
    } else {
      this.writeAscii('<entry key="');
      this.writeEscaped(source, start, end, attributeEscapes);
      this.writeAscii('">');
    }
    this.#contentStart = this.length;
    return named;
  }

  openItem(name: Buffer): void {
    this.openNamed(name);
  }

  closeMember(source: Uint8Array, start: number, end: number, named: boolean): void {
    if (this.length === this.#contentStart) {
      this.length--;
      this.writeAscii('/>');
      return;
    }
    this.writeAscii('</');
    if (named) this.copy(source, start, end);
    else this.writeAscii('entry');
    this.writeAscii('>');
  }

  openContainer(): void {}

  closeContainer(): void {}

  writeText(source: Uint8Array, start: number, end: number): void {
    this.writeEscaped(source, start, end, textEscapes);
  }

  writePlainText(source: Uint8Array, end: number): void {
    this.copy(source, 0, end);
  }

  writeNull(): void {
    this.length--;
    this.writeAscii(' nil="true">');
    this.#contentStart = this.length;
  }
}
