import type { IncomingMessage } from 'node:http';
import { PassThrough, Readable } from 'node:stream';
import { gzipSync } from 'node:zlib';
import { describe, expect, it } from '@jest/globals';
import { AppError } from '../../src/errors.js';
import { type ImportLine, readLines } from '../../src/import/read-lines.js';

const csv = { 'content-type': 'text/csv' };

function buildRequest(body: Readable, headers: Record<string, string>): IncomingMessage {
  return Object.assign(body, { headers }) as unknown as IncomingMessage;
}

/** Reads a body that arrives in chunks of 64 KiB, as from a socket. */
async function readBatches(body: Buffer, headers: Record<string, string>): Promise<(readonly ImportLine[])[]> {
  const chunks = Array.from({ length: Math.ceil(body.length / 65_536) }, (_, index) =>
    body.subarray(index * 65_536, (index + 1) * 65_536),
  );
  const batches: (readonly ImportLine[])[] = [];
  for await (const batch of readLines(buildRequest(Readable.from(chunks), headers), () => undefined))
    batches.push(batch);
  return batches;
}

const failuresOf = (batches: readonly (readonly ImportLine[])[]) =>
  batches.flat().map(({ line, content }) => [line, content instanceof AppError ? content.failure : 'read']);

describe('the lines of an import', () => {
  it('have at most 1,000 cells, and delimiters inside quotes do not count', async () => {
    const rows = ['name', 'a'.padEnd(1001, ','), 'a'.padEnd(1000, ','), `"${','.repeat(2000)}"`];
    expect(failuresOf(await readBatches(Buffer.from(rows.join('\n')), csv))).toEqual([
      [2, 'tooLarge'],
      [3, 'read'],
      [4, 'read'],
    ]);
  });

  it('are read in batches between which others have their turn', async () => {
    const wide = await readBatches(Buffer.from(`name\n${`${','.repeat(999)}\n`.repeat(50)}`), csv);
    expect(wide.flat()).toHaveLength(50);
    expect(Math.max(...wide.map((lines) => lines.length))).toBe(5);
    const narrow = await readBatches(Buffer.from('{}\n'.repeat(5000)), {});
    expect(narrow.flat()).toHaveLength(5000);
    expect(Math.max(...narrow.map((lines) => lines.length))).toBe(500);
  });

  it('count blank ones, which are passed over', async () => {
    const lines = await readBatches(Buffer.from(`{}\n${'\n'.repeat(100_000)} \r\n{}\n`), {});
    expect(lines.flat().map(({ line }) => line)).toEqual([1, 100_003]);
  });

  it('end where a body decodes to more than a hundred times its size', async () => {
    const body = gzipSync(`{}\n${'\n'.repeat(3_000_000)}{}\n`);
    expect(failuresOf(await readBatches(body, { 'content-encoding': 'gzip' }))).toEqual([
      [1, 'read'],
      [2, 'tooLarge'],
    ]);
  });

  it('end when none is completed in time', async () => {
    const body = new PassThrough();
    const lines = readLines(buildRequest(body, {}), () => undefined, 50);
    body.write('{}\n{');
    expect((await lines.next()).value).toMatchObject([{ line: 1 }]);
    const trickle = setInterval(() => body.write(' '), 10);
    const last: readonly ImportLine[] = (await lines.next()).value ?? [];
    clearInterval(trickle);
    expect(last[0]).toMatchObject({ line: 2, content: { failure: 'badParameter' } });
    expect((await lines.next()).done).toBe(true);
  });
});
