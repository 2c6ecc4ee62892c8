import { join } from 'node:path';
import type { mongo } from 'mongoose';
import { startReceiver } from '../../tests/support/receiver.js';
import { runTool } from '../../tests/support/tools.js';
import { sendOk } from '../checks/instance.js';
import {
  createStreamDevice,
  findStreamFaults,
  type StreamSender,
  startPosting,
  startPublishing,
} from '../checks/numbered-streams.js';
import { type Instance, startInstance } from '../support/instance.js';
import { waitUntil } from '../support/service-process.js';
import type { Outcome } from './outcome.js';

const min_acknowledged = 100;
const webhookNetworks = { WEBHOOK_ALLOW_NETS: '127.0.0.0/8' };

/**
 * Backs up a service under load and again when it is stopped, restores each file beside the original with `WEBHOOKS=off`, and
 * compares: nothing that was acknowledged before is missing, both copies work, and the receiver of the original hears nothing.
 */
export async function drillBackup(): Promise<Outcome> {
  const receiver = await startReceiver();
  const original = await startInstance(webhookNetworks);
  const faults: string[] = [];
  try {
    const { url, key, folder, mqttPort } = original;
    const device = await createStreamDevice(url, key, 'backed-up');
    await sendOk(url, key, 'POST', '/webhooks/', { name: 'w', url: receiver.url, types: ['project.'] });
    const senders = {
      posting: [startPosting(url, key, device)],
      publishing: [await startPublishing(`mqtt://127.0.0.1:${mqttPort}`, device)],
    };
    const all = [...senders.posting, ...senders.publishing];
    await waitUntil(() => all.every(({ acknowledged }) => acknowledged.length > min_acknowledged));
    const before = { posting: senders.posting.map(freeze), publishing: senders.publishing.map(freeze) };
    const files = { running: join(folder, 'running'), stopped: join(folder, 'stopped') };
    const env = { DATA_DIR: join(folder, 'data') };
    faults.push(...(await runTool('backup', [files.running], env)).complaints);
    await Promise.all(all.map((sender) => sender.stop()));
    const stored = await countAll(original);
    await original.stop();
    faults.push(...(await runTool('backup', [files.stopped], env)).complaints);

    for (const [name, file, acknowledged] of [
      ['running', files.running, before],
      ['stopped', files.stopped, senders],
    ] as const) {
      const DATA_DIR = join(folder, `${name}-data`);
      const { out, complaints } = await runTool('restore', [file], { DATA_DIR });
      if (!out.includes('1 webhooks are enabled')) faults.push(`${name}: the restore does not tell of the webhook`);
      const copy = await startInstance({ ...webhookNetworks, DATA_DIR, WEBHOOKS: 'off' });
      const heard = receiver.received.length;
      await sendOk(copy.url, key, 'POST', '/projects/', { name: 'made-later', id_customer: 'c' });
      const found = await findStreamFaults(await copy.database(), acknowledged);
      faults.push(...[...complaints, ...found].map((fault) => `${name}: ${fault}`));
      const counts = await countAll(copy);
      if (name === 'stopped' && counts !== stored) faults.push(`stopped: ${counts} instead of ${stored}`);
      await waitUntil(async () => (await eventsOf(copy)).includes('made-later@demo'));
      if (receiver.received.length > heard) faults.push(`${name}: the receiver of the original heard of the copy`);
      await copy.close();
    }
    const count = all.reduce((sum, { acknowledged }) => sum + acknowledged.length, 0);
    return { counted: `${count} acknowledged streams in two backups; ${stored}`, faults };
  } finally {
    await original.close();
    await receiver.close();
  }
}

/** Keeps what was acknowledged until now as all that was sent. */
function freeze({ acknowledged, ...sender }: StreamSender): StreamSender {
  const until = [...acknowledged];
  return { ...sender, sent: until, acknowledged: until };
}

/** Counts the objects of the kinds that a client stores. */
async function countAll(instance: Instance): Promise<string> {
  const db: mongo.Db = await instance.database();
  const kinds = ['services', 'groups', 'devices', 'streams', 'mqtt_credentials', 'keys', 'webhooks'];
  const counts = await Promise.all(kinds.map((kind) => db.collection(kind).countDocuments()));
  return kinds.map((kind, index) => `${counts[index]} ${kind}`).join(', ');
}

async function eventsOf({ url, key }: Instance): Promise<string[]> {
  const answer = await sendOk(url, key, 'GET', '/events/?type=project.created');
  const { result } = (await answer.json()) as { result: { id_developer: string }[] };
  return result.map(({ id_developer }) => id_developer);
}
