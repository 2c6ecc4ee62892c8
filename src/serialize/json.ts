import { bsonType } from './bson.js';
import { createEscapes } from './escapes.js';
import { Writer } from './writer.js';

const escapes = createEscapes((text) => {
  const quoted = JSON.stringify(text).slice(1, -1);
  return quoted === text ? undefined : quoted;
});

const brace = 0x7b;
const bracket = 0x5b;

/** Writes JSON, byte for byte as JSON.stringify does. */
export class JsonWriter extends Writer {
  openRoot(): void {}

  openMember(source: Uint8Array, start: number, end: number): boolean {
    this.#separate();
    this.writeText(source, start, end);
    this.writeAscii(':');
    return true;
  }

  openItem(): void {
    this.#separate();
  }

  closeMember(): void {}

  openContainer(type: number): void {
    this.writeAscii(type === bsonType.array ? '[' : '{');
  }

  closeContainer(type: number): void {
    this.writeAscii(type === bsonType.array ? ']' : '}');
  }

  writeText(source: Uint8Array, start: number, end: number): void {
    this.writeAscii('"');
    this.writeEscaped(source, start, end, escapes);
    this.writeAscii('"');
  }

  writePlainText(source: Uint8Array, end: number): void {
    this.writeAscii('"');
    this.copy(source, 0, end);
    this.writeAscii('"');
  }

  writeNull(): void {
    this.writeAscii('null');
  }

  /** Writes a comma except after { and [. An empty buffer follows a `take`, which never ends with either. */
  #separate(): void {
    const last = this.length === 0 ? 0 : this.bytes[this.length - 1];
    if (last !== brace && last !== bracket) this.writeAscii(',');
  }
}
