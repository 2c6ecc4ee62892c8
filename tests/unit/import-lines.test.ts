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

/** Reads a body that arrives in chunks, by default of 64 KiB, as from a socket. */
async function readBatches(body: Buffer, headers: Record<string, string>, chunk_bytes = 65_536) {
  const chunks = Array.from({ length: Math.ceil(body.length / chunk_bytes) }, (_, index) =>
    body.subarray(index * chunk_bytes, (index + 1) * chunk_bytes),
  );
  const batches: (readonly ImportLine[])[] = [];
  for await (const batch of readLines(buildRequest(Readable.from(chunks), headers), () => undefined))
    batches.push(batch);
  return batches;
}

const failuresOf = (batches: readonly (readonly ImportLine[])[]) =>
  batches.flat().map(({ line, content }) => [line, content instanceof AppError ? content.failure : 'read']);

/** The lines as `line content`, or with code and details of what is wrong with them. */
async function summarizeLines(body: string | Buffer, headers: Record<string, string>, chunk_bytes?: number) {
  const batches = await readBatches(Buffer.from(body as string), headers, chunk_bytes);
  return batches.flat().map(({ line, content }) => {
    const [failure, value] = content instanceof AppError ? [`${content.failure} `, content.details] : ['', content];
    return `${line} ${failure}${JSON.stringify(value)}`;
  });
}

describe('the end of a line', () => {
  const csvLines = ['name,text', 'a,1', '', '"b\r\nc","d\re\nf"', 'g,"2"'];
  const csvContent = [
    '2 {"name":"a","text":"1"}',
    '4 {"name":"b\\r\\nc","text":"d\\re\\nf"}',
    '8 {"name":"g","text":"2"}',
  ];
  const ndjsonContent = ['1 {"a":1}', '3 {"b":2}', '4 {"c":3}'];

  it.each(['\n', '\r\n', '\r'])('may be %j, wherever the chunks end', async (end) => {
    for (const chunk_bytes of [1, 2, 3, 7, 65_536])
      for (const last of ['', end]) {
        expect(await summarizeLines(csvLines.join(end) + last, csv, chunk_bytes)).toEqual(csvContent);
        const ndjson = ['{"a":1}', '', '{"b":2}', '{"c":3}'].join(end) + last;
        expect(await summarizeLines(ndjson, {}, chunk_bytes)).toEqual(ndjsonContent);
      }
  });

  it('may differ from line to line', async () => {
    const content = '\ufeffname,text\ra,1\n\r\n"b",2\r\r\nc,3';
    for (const chunk_bytes of [1, 65_536])
      expect(await summarizeLines(content, csv, chunk_bytes)).toEqual([
        '2 {"name":"a","text":"1"}',
        '4 {"name":"b","text":"2"}',
        '6 {"name":"c","text":"3"}',
      ]);
    expect(await summarizeLines('{"a":1}\r\n{"b":2}\n{"c":3}\r\n', {})).toEqual([
      '1 {"a":1}',
      '2 {"b":2}',
      '3 {"c":3}',
    ]);
  });
});

describe('the header of CSV', () => {
  it.each(['sep=;', '"sep=;"', 'SEP=;'])('may follow %s, which counts as a line', async (separator) => {
    for (const end of ['\n', '\r\n', '\r'])
      expect(await summarizeLines(`\ufeff${[separator, 'name;a,b', 'x;1'].join(end)}`, {})).toEqual([
        '3 {"name":"x","a,b":"1"}',
      ]);
    expect(await summarizeLines('sep=,\nname,a;b;c\nx,1\n', {})).toEqual(['3 {"name":"x","a;b;c":"1"}']);
  });

  it('names no column twice, blank ones aside', async () => {
    const content = 'name, type ,lon,name,type,,__proto__,,__proto__\nx,t,,y,,,,\nz,t,,,,,\n';
    expect(await summarizeLines(content, csv)).toEqual([
      '1 invalid {"name":"must be a column once","type":"must be a column once","__proto__":"must be a column once"}',
    ]);
    expect(await summarizeLines('name,,\nx,,\ny,,2\n', csv)).toEqual([
      '2 {"name":"x"}',
      '3 {"name":"y","column 3":"2"}',
    ]);
  });
});

it('says of UTF-16 that it must be UTF-8, and reads no line of it', async () => {
  const expected = ['1 badJson {"body":"must be UTF-8, and is UTF-16"}'];
  for (const text of ['\ufeffname;type\r\nx;y\r\n', 'name\nx\n', '\ufeff{"name":"x"}\n{}\n', '{}']) {
    const body = Buffer.from(text, 'utf16le');
    for (const chunk_bytes of [1, 65_536]) {
      expect(await summarizeLines(body, {}, chunk_bytes)).toEqual(expected);
      expect(await summarizeLines(Buffer.from(body).swap16(), csv, chunk_bytes)).toEqual(expected);
    }
  }
});

it('says what is wrong with a line, and where', async () => {
  const ndjson = ['{"a":1,}', '{"name":x}', '{"a":"b', '[1]', '5', `{"a":${'['.repeat(40)}`, '{"a":"\ufffd"}'];
  const lines = await summarizeLines(Buffer.from(ndjson.join('\n').replace('\ufffd', '\xff'), 'latin1'), {});
  expect(lines).toEqual([
    expect.stringMatching(/^1 badJson \{"line":".*position 7/),
    expect.stringMatching(/^2 badJson \{"line":"Unexpected token 'x'/),
    expect.stringMatching(/^3 badJson \{"line":"Unterminated string.*position 7/),
    '4 badJson {"line":"must be a JSON object"}',
    '5 badJson {"line":"must be a JSON object"}',
    '6 badJson {"line":"must have at most 32 levels"}',
    '7 badJson {"line":"must be UTF-8"}',
  ]);
  const rows = [
    'name,b,c',
    'x"y,,',
    'x,"y"z,',
    'x,\xff',
    `x${','.repeat(1000)}`,
    'y'.repeat(2 ** 20 + 1),
    'x,,"open',
    '',
  ];
  expect(await summarizeLines(Buffer.from(rows.join('\r'), 'latin1'), csv)).toEqual([
    '2 badJson {"line":"has a quote in a wrong place, in cell 1"}',
    '3 badJson {"line":"has a quote in a wrong place, in cell 2"}',
    '4 badJson {"line":"must be UTF-8"}',
    '5 tooLarge {"line":"must have at most 1000 cells, and has 1001"}',
    '6 tooLarge {"line":"must be at most 1 MiB"}',
    '7 badJson {"line":"has a quote that is not closed, in cell 3"}',
  ]);
  expect(await summarizeLines('name,"b\nx,y\n', csv)).toEqual([
    '1 badJson {"line":"has a quote that is not closed, in cell 2"}',
  ]);
});

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
