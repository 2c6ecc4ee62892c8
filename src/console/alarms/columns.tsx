import type { Alarm } from '../api/interface.js';
import type { Entry } from '../api/resources.js';
import { formatNumber } from '../lib/format.js';
import { ObjectLink } from '../ui/address.js';

/** Fields of an alarm that are shown in another way than by their schema. */
export const renderAlarm = {
  device: ({ device }: Entry | Alarm) => <ObjectLink plural="devices" id={String(device)} />,
  rule: ({ rule }: Entry | Alarm) => <ObjectLink plural="alarmrules" id={String(rule)} />,
  values: ({ values }: Entry | Alarm) =>
    Object.entries(values ?? {})
      .map(([path, value]) => `${path} ${typeof value === 'number' ? formatNumber(value) : String(value)}`)
      .join(', '),
  state: ({ state, acknowledged_by: user }: Entry | Alarm) =>
    state === 'acknowledged' && user !== undefined ? `acknowledged by ${user}` : String(state),
};
