import { limitText, type TextMessage, type Written } from '../message.js';

const max_title_length = 256;
const max_description_length = 4096;
const escapeMarks = (text: string) => text.replaceAll(/[\\`*_~|<>[\]@#]/g, '\\$&');
const escapeUpTo = (text: string, max: number) => escapeMarks(limitText(text, max, (part) => escapeMarks(part).length));

/**
 * Writes an embed of Discord, by docs.discord.com/developers: "Execute Webhook", "Embed Limits" and "Allowed Mentions
 * Object", as of August 2026. Without `wait` it answers 204 to messages that it does not keep.
 */
export function writeDiscord({ title, lines, link }: TextMessage): Written {
  const embed = {
    title: escapeUpTo(title, max_title_length),
    description: escapeUpTo(lines.join('\n'), max_description_length),
    ...(link !== undefined && { url: link }),
  };
  const body = { embeds: [embed], allowed_mentions: { parse: [] } };
  return { type: 'application/json', body: JSON.stringify(body), query: { wait: 'true' } };
}
