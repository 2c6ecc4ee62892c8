import { listEnvelope } from '../schema/list-envelope.js';
import { bsonType } from './bson.js';
import { createWriter, type Format } from './format.js';
import type { Projection } from './projections.js';
import type { Writer } from './writer.js';

const initial_bytes = 16 * 1024;
const root = Buffer.from(listEnvelope.root);
const items = Buffer.from(listEnvelope.items);

/** Writes a list: whatever `take` and finally `end` return is the whole. */
export interface ListOutput {
  /** Bytes waiting to be taken. */
  readonly size: number;
  /** Appends a stored document as the projection shows it. */
  append(bson: Uint8Array): void;
  /** Appends a plain value as it is. */
  appendValue(value: unknown): void;
  /** Removes and returns the waiting bytes. */
  take(): Buffer;
  /** Returns the waiting bytes and those after the last document. @param next value of `after` that continues the list */
  end(next?: string): Buffer;
}

export interface ListOptions<Context> {
  projection: Projection<Context>;
  format: Format;
  context: Context;
  total_documents: number;
  metadata?: object | undefined;
}

/**
 * Writes the list envelope `{"total_documents":N,"metadata":{…},"result":[…],"next":…}`, or the same elements in
 * `response` (reference/lists.md#list-body).
 */
export class ListWriter<Context> implements ListOutput {
  /** Documents appended. */
  count = 0;
  readonly #projection: Projection<Context>;
  readonly #context: Context;
  readonly #out: Writer;

  constructor({ projection, format, context, total_documents, metadata }: ListOptions<Context>) {
    this.#projection = projection;
    this.#context = context;
    this.#out = createWriter(format, initial_bytes);
    this.#out.openRoot(root);
    this.#out.openContainer(bsonType.document);
    this.#out.member(listEnvelope.total, total_documents);
    if (metadata !== undefined) this.#out.member(listEnvelope.metadata, metadata);
  }

  get size(): number {
    return this.#out.length;
  }

  append(bson: Uint8Array): void {
    this.#openItem();
    this.#projection.write(bson, this.#out, this.#context);
    this.#out.closeNamed(this.#projection.element);
  }

  appendValue(value: unknown): void {
    this.#openItem();
    this.#out.writeValue(value);
    this.#out.closeNamed(this.#projection.element);
  }

  take(): Buffer {
    return this.#out.take();
  }

  end(next?: string): Buffer {
    if (this.count === 0) this.#openResult();
    this.#out.closeContainer(bsonType.array);
    this.#out.closeNamed(items);
    if (next !== undefined) this.#out.member(listEnvelope.next, next);
    this.#out.closeContainer(bsonType.document);
    this.#out.closeNamed(root);
    return this.#out.take();
  }

  #openItem(): void {
    if (this.count++ === 0) this.#openResult();
    this.#out.openItem(this.#projection.element);
  }

  #openResult(): void {
    this.#out.openNamed(items);
    this.#out.openContainer(bsonType.array);
  }
}
