import { describe, expect, it } from '@jest/globals';
import { writers } from '../../src/webhooks/formats.js';
import { limitText, writeMessage } from '../../src/webhooks/message.js';

const family = '👨‍👩‍👧‍👦';
const names = { nameOf: (_resource: string, id: string) => id, measureOf: () => undefined, time_zone: 'Asia/Kolkata' };
const event = { type: 'device.status_changed', resource: 'device', id_developer: 'Pump', at: 1_767_225_600.5 };

describe('a message', () => {
  it('has a line of 120 characters as people read them', () => {
    const { title } = writeMessage({ ...event, type: 'device.created', id_developer: family.repeat(130) }, names);
    expect(title).toBe(`Device created: ${family.repeat(103)}…`);
    expect(limitText('e\u0301'.repeat(120), 120)).toBe('e\u0301'.repeat(120));
  });

  it('of a status has the time zone of the device, and UTC for one that is not known', () => {
    const data = { from: 'ok', to: 'no_data', since: 1_767_225_600.5 };
    const message = writeMessage({ ...event, id_group: 'Hall\u2028Bcc: x', data }, names, 'https://x.example/');
    expect(message).toEqual({
      title: 'Device sends no data: Pump',
      lines: ['Device: Pump', 'Part of: Hall Bcc: x', 'Before: Ok', 'Since: 1 Jan 2026, 05:30:00 (Asia/Kolkata)'],
      link: 'https://x.example/',
    });
    const elsewhere = writeMessage({ ...event, data }, { ...names, time_zone: 'Nowhere/Else' });
    expect(elsewhere.lines.at(-1)).toBe('Since: 1 Jan 2026, 00:00:00 (UTC)');
  });
});

describe('a text that is too long', () => {
  const title = family.repeat(40);
  const message = {
    title,
    lines: Array.from({ length: 50 }, () => `*<@1>"\\${family.repeat(20)}`),
    link: 'https://x.example/',
  };

  it('fits into what the services take, and ends between characters', () => {
    const discord = JSON.parse(writers.discord(message).body).embeds[0];
    expect(discord.title).toBe(`${family.repeat(23)}…`);
    expect(discord.description.length).toBeLessThanOrEqual(4096);
    expect(discord.description).toMatch(new RegExp(`${family}…$`));
    const slack = JSON.parse(writers.slack(message).body);
    expect(slack.text.length).toBeLessThanOrEqual(4000);
    expect(Buffer.byteLength(writers.ntfy(message).body)).toBeLessThanOrEqual(4096);
    expect(Buffer.byteLength(writers.teams(message).body)).toBeLessThanOrEqual(28_000);
  });

  it('goes into a header as RFC 2047', () => {
    const { Title = '' } = writers.ntfy(message).headers ?? {};
    expect(Buffer.from(Title.slice('=?UTF-8?B?'.length, -'?='.length), 'base64').toString()).toBe(title);
    const plain = writers.ntfy({ ...message, title: 'a =?UTF-8?B?Cg==?=' }).headers?.Title;
    expect(plain).toBe(`=?UTF-8?B?${Buffer.from('a =?UTF-8?B?Cg==?=').toString('base64')}?=`);
  });
});
