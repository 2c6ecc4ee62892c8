import type { MessageFormat } from '../../resources/webhook.js';
import type { TextMessage, Written } from '../message.js';
import { writeDiscord } from './discord.js';
import { writeNtfy } from './ntfy.js';
import { writeSlack } from './slack.js';
import { writeTeams } from './teams.js';
import { writeText } from './text.js';

/** Writes messages as the services take them. */
export const writers: Readonly<Record<Exclude<MessageFormat, 'standard'>, (message: TextMessage) => Written>> = {
  text: writeText,
  slack: writeSlack,
  teams: writeTeams,
  discord: writeDiscord,
  ntfy: writeNtfy,
};
