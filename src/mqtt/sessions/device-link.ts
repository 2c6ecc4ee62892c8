import type { CommandMetrics, MarkSent } from '../../commands/delivery.js';
import type { OpenCommands } from '../../commands/open-commands.js';
import { parseResult } from '../../commands/parse.js';
import { findCommand, finishCommand } from '../../commands/store.js';
import type { CommandEntry } from '../../commands/tail.js';
import type { StoredNode } from '../../db/batching/loader.js';
import type { Database } from '../../db/database.js';
import { mergeReported } from '../../device-state/changes.js';
import type { DesiredStates } from '../../device-state/desired.js';
import { checkPatch } from '../../device-state/rules.js';
import type { ChangeState } from '../../device-state/store.js';
import type { StateEntry } from '../../device-state/tail.js';
import { AppError } from '../../errors.js';
import type { Tail } from '../../http/live/tail.js';
import { isPlainObject } from '../../schema/fields/object.js';
import type { Values } from '../../schema/fields.js';
import { parseJson, tooManyValues } from '../../schema/json.js';
import { parseDeviceTopic } from '../protocol/topics.js';
import type { Drop, Message, PublishResult } from './ingest.js';

/** The state and the commands of devices, as the broker uses them. */
export interface DeviceLink {
  findDevice(account: string, id: string): Promise<StoredNode | undefined>;
  changeState: ChangeState;
  desiredStates: DesiredStates;
  openCommands: OpenCommands;
  stateTail: Tail<StateEntry>;
  commandTail: Tail<CommandEntry>;
  markSent: MarkSent;
  metrics: CommandMetrics;
}

/** A publish to a topic of the state or the commands of a device. `now` in whole epoch seconds. */
interface DevicePublish extends Message {
  account: string;
  correlation_data?: Buffer | undefined;
  now: number;
}

/** Takes a report, or the answer to a command; it is durable when this resolves (reference/mqtt.md#state-and-commands). */
export async function ingestDeviceMessage(
  db: Database,
  link: DeviceLink,
  { account, topic, payload, now, correlation_data }: DevicePublish,
): Promise<PublishResult> {
  const { device = '', channel } = parseDeviceTopic(topic) ?? {};
  try {
    const { value, fault } = parseJson(payload);
    if (fault === 'tooManyValues') return dropInvalid({ payload: tooManyValues });
    if (!isPlainObject(value)) return dropInvalid({ payload: 'must be a JSON object' });
    const sender = { account, device, now };
    const id = correlation_data && { id: correlation_data.toString() };
    if (channel === 'state/reported') await report(link, sender, value);
    else await answer(db, link, sender, { ...id, ...value });
    return { forward: 'itself' };
  } catch (error) {
    if (!(error instanceof AppError)) return { drop: 'database', error };
    if (error.failure === 'notFound')
      return dropInvalid({ [channel === 'state/reported' ? 'device' : 'id']: 'does not exist' });
    return error.failure === 'invalid' ? dropInvalid(error.details) : { drop: 'database', error };
  }
}

/** @param details as those of 4003 */
function dropInvalid(details: AppError['details']): Drop {
  const [[field, fault] = []] = Object.entries(details);
  return { drop: 'invalid', field: field === 'device' ? field : 'payload', fault: String(fault), details };
}

interface Sender {
  account: string;
  device: string;
  now: number;
}

/** @throws AppError invalid (4003), notFound (4041) */
async function report(link: DeviceLink, { account, device, now }: Sender, patch: Values): Promise<void> {
  checkPatch('reported', patch);
  const node = await link.findDevice(account, device);
  if (node === undefined) throw new AppError('notFound');
  await link.changeState(node, (state) => mergeReported(state, patch, { now }));
}

/** @throws AppError invalid (4003), notFound (4041) */
async function answer(db: Database, link: DeviceLink, { account, device, now }: Sender, body: Values): Promise<void> {
  const parsed = parseResult(body, (values, faults) => {
    if (values.id === undefined) faults.id ??= 'is required';
  });
  const { id = '', status, result } = parsed;
  const stored = await findCommand(db, account, device, id);
  if (await finishCommand(db, stored, { status, result }, { now })) link.metrics.entered(status, 1);
}
