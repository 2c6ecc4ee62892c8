import { createReadStream } from 'node:fs';
import { open } from 'node:fs/promises';
import { type Readable, Transform } from 'node:stream';
import { createStreamClient, readLines } from './stream-client.js';

/** The answer to one line (reference/import.md#answer). */
export interface LineAnswer {
  line: number;
  code: number;
  id_developer?: string;
  details?: object;
}

export interface ImportTotals {
  created: number;
  updated: number;
  skipped: number;
  failed: number;
}

export interface FileImport {
  /** The service's {base_url}. */
  url: string;
  key: string;
  /** Name of the file; `-` is standard input. */
  path: string;
  /** `text/csv` or `application/x-ndjson`; undefined: the service finds out. */
  content_type: string | undefined;
  parameters: ReadonlyMap<string, string>;
  /** Called for every line. */
  report: (answer: LineAnswer) => void;
  /** Bytes sent, of the bytes of the file; not for standard input. */
  showProgress: (done: number, total: number) => void;
}

/**
 * Sends a file to the import of the service, in constant memory.
 * @returns the totals. @throws Error with a message of one line, that has the last line answered if the connection was lost
 */
export async function sendImport(options: FileImport): Promise<ImportTotals> {
  const { path, content_type, parameters, report } = options;
  const send = createStreamClient(options.url, options.key);
  const body = await openFile(options);
  const headers = content_type === undefined ? {} : { 'content-type': content_type };
  let lastLine = 0;
  try {
    const query = parameters.size === 0 ? '' : `?${new URLSearchParams([...parameters])}`;
    const answers = await send('POST', `/import/${query}`, { body, headers });
    let totals: ImportTotals | undefined;
    // to its end: a connection with an unread answer keeps the process running until the service closes it
    for await (const text of readLines(answers)) {
      const answer: LineAnswer & { totals?: ImportTotals } = JSON.parse(text);
      if (answer.totals !== undefined) {
        totals = answer.totals;
        continue;
      }
      lastLine = answer.line;
      report(answer);
    }
    if (totals === undefined) throw new Error('the answer ends early');
    return totals;
  } catch (error) {
    if (lastLine === 0) throw error;
    const reason = error instanceof Error ? error.message : String(error);
    const source = path === '-' ? 'standard input' : path;
    throw new Error(
      `${reason}; line ${lastLine} of ${source} was the last one answered. Import it again to complete it`,
    );
  } finally {
    body.destroy();
  }
}

async function openFile({ path, showProgress }: FileImport): Promise<Readable> {
  if (path === '-') return process.stdin;
  const file = await open(path).catch((error: Error) => {
    throw new Error(`${path} cannot be read: ${error.message}`);
  });
  const { size } = await file.stat();
  let sent = 0;
  const counter = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      sent += chunk.length;
      showProgress(sent, size);
      done(null, chunk);
    },
  });
  const source = createReadStream(path, { fd: file });
  source.on('error', (error) => counter.destroy(error));
  counter.on('close', () => source.destroy());
  return source.pipe(counter);
}
