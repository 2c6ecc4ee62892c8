import { createHash, randomUUID, timingSafeEqual } from 'node:crypto';
import { type FileHandle, open, rename, rm } from 'node:fs/promises';
import { promisify } from 'node:util';
import { deflateRaw, inflateRaw } from 'node:zlib';
import { StartError } from '../errors.js';
import { awaitLater } from '../lib/promises.js';
import { version } from '../lib/version.js';

/**
 * The file of a backup: `magic`, the number of its format (1 byte), frames, and the SHA-256 of everything before. A frame is
 * its kind (1 byte), its length (4 bytes, little-endian) and its content: one header, then for each collection its
 * specification and its documents (BSON, deflated, in chunks), and at last the totals.
 */
const magic = Buffer.from('DEVPLAT');
/** Format 1 is that of version 0.2.0, which refuses 2; they differ in nothing else. */
const format = 2;
const kinds = { header: 'H', collection: 'C', documents: 'D', totals: 'T' } as const;
export type FrameKind = keyof typeof kinds;
const kindOf = new Map<string, FrameKind>(Object.entries(kinds).map(([kind, code]) => [code, kind as FrameKind]));

export interface Frame {
  kind: FrameKind;
  content: Buffer;
}

const prefix_bytes = 5;
const digest_bytes = 32;
const min_document_bytes = 5;
/** Uncompressed documents of a frame; a document has at most 16 MiB, and one reply of the database as much. */
const chunk_bytes = 4 * 1024 * 1024;
const max_chunk_bytes = 40 * 1024 * 1024;
const max_compressing = 3;

const deflate = promisify(deflateRaw) as (data: Buffer, options: object) => Promise<Buffer>;
const inflate = promisify(inflateRaw) as (data: Buffer, options: object) => Promise<Buffer>;

/** Creates a file that only this user can read, and that has its name only once it is whole. @throws StartError if it cannot be written */
export async function createBackupFile(path: string) {
  // a random name, which cannot have been prepared: an existing file would keep its owner and mode, and a link would be followed
  const draft = `${path}.${randomUUID()}.partial`;
  const file = await open(draft, 'wx', 0o600).catch(refuse);
  const digest = createHash('sha256');
  const queue: { kind: FrameKind; content: Promise<Uint8Array> }[] = [];
  let chunk: Uint8Array[] = [];
  let chunkLength = 0;
  let length = 0;

  function refuse(error: Error): never {
    throw new StartError(`${path} cannot be written: ${error.message}`);
  }
  async function write(bytes: Uint8Array): Promise<void> {
    digest.update(bytes);
    length += bytes.length;
    await file.writeFile(bytes).catch(refuse);
  }
  async function writeQueued(max_left: number): Promise<void> {
    while (queue.length > max_left) {
      const [next] = queue.splice(0, 1);
      if (next === undefined) return;
      const content = await next.content;
      const prefix = Buffer.alloc(prefix_bytes);
      prefix.write(kinds[next.kind], 'latin1');
      prefix.writeUInt32LE(content.length, 1);
      await write(prefix);
      await write(content);
    }
  }
  async function flush(): Promise<void> {
    if (chunkLength === 0) return;
    queue.push({ kind: 'documents', content: awaitLater(deflate(Buffer.concat(chunk), { level: 1 })) });
    chunk = [];
    chunkLength = 0;
    await writeQueued(max_compressing);
  }

  await write(Buffer.concat([magic, Buffer.of(format)]));
  return {
    async frame(kind: FrameKind, content: Uint8Array): Promise<void> {
      await flush();
      queue.push({ kind, content: Promise.resolve(content) });
    },
    async documents(documents: readonly Uint8Array[]): Promise<void> {
      for (const document of documents) {
        chunk.push(document);
        chunkLength += document.length;
        if (chunkLength >= chunk_bytes) await flush();
      }
    },
    /** Writes what is left, and renames the file. @returns its length in bytes */
    async finish(): Promise<number> {
      await flush();
      await writeQueued(0);
      await write(digest.copy().digest());
      await file.sync();
      await file.close();
      await rename(draft, path).catch(refuse);
      return length;
    },
    /** Removes the unfinished file. */
    async abort(): Promise<void> {
      await file.close().catch(() => undefined);
      await rm(draft, { force: true });
    },
  };
}

/** A backup to read. */
export type BackupReader = Awaited<ReturnType<typeof openBackupFile>>;

/** Opens a backup. @throws StartError if it cannot be read */
export async function openBackupFile(path: string) {
  const file = await open(path, 'r').catch((error: Error) => {
    throw new StartError(`${path} cannot be read: ${error.message}`);
  });
  const { size: length } = await file.stat();
  return {
    /** Bytes of the file. */
    length,
    /** Reads the file from its start. @throws StartError if it is not a whole, unchanged backup, at the latest at its end */
    frames: () => readFrames(file, path, length),
    close: () => file.close(),
  };
}

async function* readFrames(file: FileHandle, path: string, length: number): AsyncGenerator<Frame> {
  const digest = createHash('sha256');
  const refuse = (reason: string): never => {
    throw new StartError(`${path} ${reason}; nothing was changed`);
  };
  let position = 0;
  const read = async (size: number): Promise<Buffer> => {
    if (position + size > length) refuse('is not whole');
    const bytes = Buffer.alloc(size);
    for (let done = 0; done < size; ) {
      const { bytesRead } = await file.read(bytes, done, size - done, position + done);
      if (bytesRead === 0) refuse('is not whole');
      done += bytesRead;
    }
    position += size;
    return bytes;
  };
  const start = await read(Math.min(magic.length + 1, length));
  if (!start.subarray(0, magic.length).equals(magic)) refuse('is not a backup');
  const found = start[magic.length] ?? 0;
  if (found > format)
    refuse(`is a backup of format ${found}, made by a later version; version ${version} reads up to ${format}`);
  digest.update(start);
  for (let kind: FrameKind | undefined; kind !== 'totals'; ) {
    const prefix = await read(prefix_bytes);
    kind = kindOf.get(prefix.toString('latin1', 0, 1)) ?? refuse('is damaged');
    const content = await read(prefix.readUInt32LE(1));
    digest.update(prefix).update(content);
    yield { kind, content };
  }
  if (!timingSafeEqual(await read(digest_bytes), digest.digest())) refuse('is damaged');
  if (position !== length) refuse('is damaged');
}

/** Splits a frame into its documents. @throws StartError if their lengths do not fit */
export async function parseDocuments({ content }: Frame): Promise<Buffer[]> {
  const bytes = await inflate(content, { maxOutputLength: max_chunk_bytes });
  const documents: Buffer[] = [];
  for (let start = 0; start < bytes.length; ) {
    const end = start + (start + min_document_bytes > bytes.length ? 0 : bytes.readInt32LE(start));
    if (end < start + min_document_bytes || end > bytes.length)
      throw new StartError('the backup has a damaged document');
    documents.push(bytes.subarray(start, end));
    start = end;
  }
  return documents;
}
