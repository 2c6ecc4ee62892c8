import { limitText, type TextMessage, type Written } from '../message.js';

/** The service takes 28 KB. */
const max_text_bytes = 20_000;

/**
 * Writes an Adaptive Card for a workflow of Teams, by learn.microsoft.com: "Create an Incoming Webhook" and "Text
 * features" of Adaptive Cards, as of November 2026. Markdown, and so links and mentions, is not read in a `TextRun`.
 */
export function writeTeams({ title, lines, link }: TextMessage): Written {
  const text = limitText(lines.filter((line) => line !== '').join('\n'), max_text_bytes, (part) =>
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
  return { type: 'application/json', body: JSON.stringify({ type: 'message', attachments: [attachment] }) };
}

function writeBlock(text: string, style: object = {}) {
  return { type: 'RichTextBlock', inlines: [{ type: 'TextRun', text, ...style }] };
}
