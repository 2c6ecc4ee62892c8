import { limitText, type TextMessage, type Written } from '../message.js';

/** Longer messages become files. */
const max_bytes = 4096;
const priorities: ReadonlyMap<string | undefined, string> = new Map([
  ['critical', '5'],
  ['warning', '4'],
]);

/** Writes a message of ntfy, by docs.ntfy.sh/publish, as of November 2026: texts in headers are encoded as RFC 2047. */
export function writeNtfy({ title, lines, link, severity }: TextMessage): Written {
  const isPlain = /^[ -~]*$/.test(title) && !title.includes('=?');
  const headers = {
    Title: isPlain ? title : `=?UTF-8?B?${Buffer.from(title).toString('base64')}?=`,
    Priority: priorities.get(severity) ?? '3',
    ...(link !== undefined && { Click: link }),
  };
  const body = limitText(lines.join('\n'), max_bytes, (part) => Buffer.byteLength(part));
  return { type: 'text/plain; charset=utf-8', headers, body };
}
