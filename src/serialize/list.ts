import { listEnvelope } from '../schema/list-envelope.js';
import { bsonType } from './bson.js';
import { createWriter, type Format } from './format.js';
import type { Projection } from './projections.js';
import type { Writer } from './writer.js';

const initial_bytes = 16 * 1024;
const root = Buffer.from(listEnvelope.root);
const items = Buffer.from(listEnvelope.items);

export interface ListOptions<Context> {
  projection: Projection<Context>;
  format: Format;
  context: Context;
  total_documents: number;
  metadata?: object | undefined;
}

/**
 * Writes the list envelope `{"total_documents":N,"metadata":{…},"result":[…]}`, or the same elements in `response`
 * (reference/lists.md#list-body): whatever `take` and finally `end` return is the whole.
 */
export class ListWriter<Context> {
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

  /** Bytes waiting to be taken. */
  get size(): number {
    return this.#out.length;
  }

  /** Appends a stored document as the projection shows it. */
  append(bson: Uint8Array): void {
    this.#openItem();
    this.#projection.write(bson, this.#out, this.#context);
    this.#out.closeNamed(this.#projection.element);
  }

  /** Appends a plain value as it is. */
  appendValue(value: unknown): void {
    this.#openItem();
    this.#out.writeValue(value);
    this.#out.closeNamed(this.#projection.element);
  }

  /** Removes and returns the waiting bytes. */
  take(): Buffer {
    return this.#out.take();
  }

  /** Returns the waiting bytes and those after the last document. */
  end(): Buffer {
    if (this.count === 0) this.#openResult();
    this.#out.closeContainer(bsonType.array);
    this.#out.closeNamed(items);
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
