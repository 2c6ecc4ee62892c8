import { type TextMessage, type Written, writeBody } from '../message.js';

/** Writes the title as the first line. */
export function writeText(message: TextMessage): Written {
  return { type: 'text/plain; charset=utf-8', body: `${message.title}\n\n${writeBody(message)}\n` };
}
