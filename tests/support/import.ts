import { expect } from '@jest/globals';
import type { Api, Reply } from './service.js';

type Json = Record<string, unknown>;

/** One line of the answer to an import. */
export interface LineAnswer {
  line: number;
  code: number;
  id_developer?: string;
  details?: Json;
}

/** The answer to an import, parsed. */
export interface ImportAnswer {
  lines: LineAnswer[];
  totals: { created: number; updated: number; skipped: number; failed: number };
}

/** Parses an answer and asserts that it is complete. */
export function parseAnswer({ status, headers, text }: Pick<Reply, 'status' | 'headers' | 'text'>): ImportAnswer {
  expect([status, headers['content-type']]).toEqual([200, 'application/x-ndjson']);
  expect(text.endsWith('\n')).toBe(true);
  const lines = text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
  const { totals, ...rest } = lines.pop();
  expect(rest).toEqual({});
  return { lines, totals };
}

/** Imports objects as NDJSON, or text as it is. */
export async function sendImport(
  api: Api,
  content: string | readonly Json[],
  query = '',
  headers: Record<string, string> = {},
): Promise<ImportAnswer> {
  const body = typeof content === 'string' ? content : content.map((line) => `${JSON.stringify(line)}\n`).join('');
  return parseAnswer(await api.send('POST', `/import/${query}`, headers, body));
}
