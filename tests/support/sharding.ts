import { readFileSync } from 'node:fs';

/** Rows of the table of docs/sharding.md whose first column is `heading`, without marks of code. */
export function rowsOf(heading: string): string[][] {
  const lines = readFileSync('docs/sharding.md', 'utf8').split('\n');
  const from = lines.findIndex((line) => line.startsWith(`| ${heading} |`));
  const to = lines.findIndex((line, index) => index > from && !line.startsWith('|'));
  return lines.slice(from + 2, to).map((line) =>
    line
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim().replaceAll('`', '')),
  );
}
