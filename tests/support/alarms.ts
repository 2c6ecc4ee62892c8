import type { TestContext } from './expect-status.js';
import { waitForEvents } from './logged-events.js';
import { waitFor, waitUntil } from './process.js';
import { type Api, pathOf } from './service.js';

type Json = Record<string, unknown>;

/** An alarm as it is listed. */
export interface ListedAlarm extends Json {
  id: string;
  rule: string;
  device: string;
  severity: string;
  state: string;
  values: Json;
  raised_at: number;
}

/** Creates rules and devices of their own for each test, and reads their alarms. */
export function createAlarmTools(ctx: TestContext) {
  let number = 0;
  return {
    /** @returns the identifier of the rule */
    async rule(fields: Json): Promise<string> {
      const name = `alarm rule ${++number}`;
      const reply = await ctx.api.post('/alarmrules/', { name, severity: 'warning', ...fields });
      if (reply.body.code !== 2001) throw new Error(reply.text);
      return `${name}@acme`;
    },
    /** Waits until a rule that was made or changed has looked at what is stored. @param type of the event of the change */
    async waitForScan(rule: string, type = 'alarmrule.created'): Promise<void> {
      const { db } = ctx.service;
      const [logged] = await waitForEvents(ctx.api, `type=${type}&id_developer=${encodeURIComponent(rule)}`, 1);
      const positions = db.collection('alarm_watch');
      await waitUntil(async () => (await positions.countDocuments({ event: { $gte: logged?.id } })) === 1);
      await waitUntil(async () => (await db.collection('alarm_scans').countDocuments({ targets: rule })) === 0);
    },
    async send(device: string, streams: unknown): Promise<void> {
      const reply = await ctx.api.post(pathOf('devices', device, 'streams'), streams);
      if (reply.body.code !== 2001) throw new Error(reply.text);
    },
    /** The alarms of a device, oldest first. */
    async alarmsOf(device: string, query = ''): Promise<ListedAlarm[]> {
      return (await ctx.api.get(`${pathOf('devices', device, 'alarms')}?order=1${query}`)).body.result;
    },
    async statesOf(device: string): Promise<string[]> {
      const alarms: ListedAlarm[] = await this.alarmsOf(device);
      return alarms.map(({ state }) => state);
    },
    /** Waits until the alarms of a device have these states. */
    async waitForStates(device: string, states: readonly string[]): Promise<void> {
      await waitFor(
        () => this.statesOf(device),
        (present) => present.join() === states.join(),
      );
    },
    /** Waits for the events of the alarms of a device. @returns their kinds in order */
    async kindsOf(device: string, count: number, api: Api = ctx.api): Promise<string[]> {
      const query = `resource=alarm&id_developer=${encodeURIComponent(device)}`;
      return (await waitForEvents(api, query, count)).map(({ type }) => type.slice('alarm.'.length));
    },
  };
}
