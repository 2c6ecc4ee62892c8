import { listEnvelope } from '../schema/list-envelope.js';
import { bsonType } from './bson.js';
import { createWriter, type Format } from './format.js';
import type { Projection } from './projections.js';
import type { Writer } from './writer.js';

const header_bytes = 1024;
const initial_bytes = 16 * 1024;
const root = Buffer.from(listEnvelope.root);
const items = Buffer.from(listEnvelope.items);

/**
 * Writes the list envelope `{"total_documents":N,"metadata":{…},"result":[…]}`, or the same elements in `response`
 * (reference/lists.md#list-body): header, everything taken and footer, in this order, are the whole.
 */
export class ListWriter<Context> {
  /** Documents appended. */
  count = 0;
  readonly #projection: Projection<Context>;
  readonly #format: Format;
  readonly #context: Context;
  readonly #out: Writer;

  constructor(projection: Projection<Context>, format: Format, context: Context) {
    this.#projection = projection;
    this.#format = format;
    this.#context = context;
    this.#out = createWriter(format, initial_bytes);
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

  /** Returns the bytes before the first document; may be called last, when the metadata is known. */
  header(total_documents: number, metadata?: object): Buffer {
    const out = createWriter(this.#format, header_bytes);
    out.openRoot(root);
    out.openContainer(bsonType.document);
    out.member(listEnvelope.total, total_documents);
    if (metadata !== undefined) out.member(listEnvelope.metadata, metadata);
    return out.take();
  }

  /** Returns the waiting bytes and those after the last document. */
  footer(): Buffer {
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
