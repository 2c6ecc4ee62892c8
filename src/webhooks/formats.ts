import type { MessageFormat } from '../resources/webhook.js';
import { limitText, type TextMessage, type Written, writeBody } from './message.js';

/** Writes messages as the services take them. */
export const writers: Readonly<Record<Exclude<MessageFormat, 'standard'>, (message: TextMessage) => Written>> = {
  /** The title as the first line. */
  text: (message) => ({ type: 'text/plain; charset=utf-8', body: `${message.title}\n\n${writeBody(message)}\n` }),
  slack: writeSlack,
  teams: writeTeams,
  discord: writeDiscord,
  ntfy: writeNtfy,
};

const writeJson = (body: object): Written => ({ type: 'application/json', body: JSON.stringify(body) });

/** Slack recommends this bound and cuts off far beyond. */
const max_slack_length = 4000;
const entities = new Map([
  ['&', '&amp;'],
  ['<', '&lt;'],
  ['>', '&gt;'],
]);
const escapeEntities = (text: string) => text.replaceAll(/[&<>]/g, (character) => entities.get(character) ?? '');

/**
 * Writes an incoming webhook of Slack, whose mentions and links are in `<>`, by docs.slack.dev/messaging:
 * "Sending messages using incoming webhooks" and "Formatting message text", as of November 2026.
 */
function writeSlack(message: TextMessage): Written {
  const text = `${message.title}\n${writeBody(message)}`;
  const shown = escapeEntities(limitText(text, max_slack_length, (part) => escapeEntities(part).length));
  return writeJson({ text: shown, mrkdwn: false, unfurl_links: false, unfurl_media: false });
}

/** The service takes 28 KB. */
const max_card_bytes = 20_000;

/**
 * Writes an Adaptive Card for a workflow of Teams, by learn.microsoft.com: "Create an Incoming Webhook" and "Text
 * features" of Adaptive Cards, as of November 2026. Markdown, and so links and mentions, is not read in a `TextRun`.
 */
function writeTeams({ title, lines, link }: TextMessage): Written {
  const text = limitText(lines.filter((line) => line !== '').join('\n'), max_card_bytes, (part) =>
    Buffer.byteLength(JSON.stringify(part)),
  );
  const blocks = [
    writeBlock(title, { weight: 'Bolder', size: 'Medium' }),
    ...text.split('\n').map((line) => writeBlock(line)),
  ];
  const content = {
    $schema: 'http://adaptivecards.io/schemas/adaptive-card.json',
    type: 'AdaptiveCard',
    version: '1.4',
    body: blocks,
    ...(link !== undefined && { actions: [{ type: 'Action.OpenUrl', title: 'Open the console', url: link }] }),
  };
  const attachment = { contentType: 'application/vnd.microsoft.card.adaptive', contentUrl: null, content };
  return writeJson({ type: 'message', attachments: [attachment] });
}

function writeBlock(text: string, style: object = {}) {
  return { type: 'RichTextBlock', inlines: [{ type: 'TextRun', text, ...style }] };
}

const max_embed_title_length = 256;
const max_description_length = 4096;
const escapeMarks = (text: string) => text.replaceAll(/[\\`*_~|<>[\]@#]/g, '\\$&');
const escapeUpTo = (text: string, max: number) => escapeMarks(limitText(text, max, (part) => escapeMarks(part).length));

/**
 * Writes an embed of Discord, by docs.discord.com/developers: "Execute Webhook", "Embed Limits" and "Allowed Mentions
 * Object", as of August 2026. Without `wait` it answers 204 to messages that it does not keep.
 */
function writeDiscord({ title, lines, link }: TextMessage): Written {
  const embed = {
    title: escapeUpTo(title, max_embed_title_length),
    description: escapeUpTo(lines.join('\n'), max_description_length),
    ...(link !== undefined && { url: link }),
  };
  return { ...writeJson({ embeds: [embed], allowed_mentions: { parse: [] } }), query: { wait: 'true' } };
}

/** Longer messages become files. */
const max_ntfy_bytes = 4096;
const priorities: ReadonlyMap<string | undefined, string> = new Map([
  ['critical', '5'],
  ['warning', '4'],
]);

/** Writes a message of ntfy, by docs.ntfy.sh/publish, as of November 2026: texts in headers are encoded as RFC 2047. */
function writeNtfy({ title, lines, link, severity }: TextMessage): Written {
  const isPlain = /^[ -~]*$/.test(title) && !title.includes('=?');
  const headers = {
    Title: isPlain ? title : `=?UTF-8?B?${Buffer.from(title).toString('base64')}?=`,
    Priority: priorities.get(severity) ?? '3',
    ...(link !== undefined && { Click: link }),
  };
  const body = limitText(lines.join('\n'), max_ntfy_bytes, (part) => Buffer.byteLength(part));
  return { type: 'text/plain; charset=utf-8', headers, body };
}
