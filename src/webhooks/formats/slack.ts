import { limitText, type TextMessage, type Written, writeBody } from '../message.js';

/** Slack recommends this bound and cuts off far beyond. */
const max_length = 4000;
const entities = new Map([
  ['&', '&amp;'],
  ['<', '&lt;'],
  ['>', '&gt;'],
]);
const escapeMarks = (text: string) => text.replaceAll(/[&<>]/g, (character) => entities.get(character) ?? '');

/**
 * Writes an incoming webhook of Slack, whose mentions and links are in `<>`, by docs.slack.dev/messaging:
 * "Sending messages using incoming webhooks" and "Formatting message text", as of November 2026.
 */
export function writeSlack(message: TextMessage): Written {
  const text = limitText(`${message.title}\n${writeBody(message)}`, max_length, (part) => escapeMarks(part).length);
  const body = { text: escapeMarks(text), mrkdwn: false, unfurl_links: false, unfurl_media: false };
  return { type: 'application/json', body: JSON.stringify(body) };
}
