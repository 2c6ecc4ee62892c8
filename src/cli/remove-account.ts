import { setTimeout as sleep } from 'node:timers/promises';
import { buildBounds } from '../db/clustered.js';
import type { Collection, StoredDocument } from '../db/database.js';
import { deleteInChunks } from '../db/delete-in-chunks.js';
import { storedNameOf } from '../db/former-versions.js';
import type { ToolConnection } from '../db/tool-connection.js';
import { StartError } from '../errors.js';
import { finishLog } from '../events/log-reader.js';
import { silentLog } from '../lib/log.js';
import { withPrefix } from '../mqtt/store/keys.js';
import { findAccounts } from '../objects/api-keys.js';
import { measured_paths } from '../objects/values/measured-paths.js';
import { alarm, apikey, device, stream, streamsummary, valuereview } from '../resources/index.js';

/** A removal that was begun, in `maintenance` until it is complete. */
interface RemovalMark {
  _id: string;
}

/** Running services forget revoked keys within 5 s, and end requests and MQTT connections within that time. */
const settle_ms = 6000;
/** A lease of a service that was killed ends after 5 s. */
const log_limit_ms = 30_000;

/** Deleted first: logins, and the devices that all streams and states belong to. */
const firstCollections = ['apikeys', 'mqttcredentials', 'webhooks', 'filestores', device.plural];

/** Selections of collections whose documents do not name the account in `account`. */
function selectDocuments(name: string, account: string): object {
  if (name === stream.plural || name === streamsummary.plural) return { _id: buildBounds({ account }, 'device') };
  // only an alarm that was raised has `account`
  if (name === alarm.plural) return { tenant: account };
  if (name === 'mqtt_retained') return { _id: withPrefix(account) };
  if (name === storedNameOf('leases')) return { _id: `${measured_paths} ${account}` };
  if (name === 'identifier_counters') return { _id: endingWith(account) };
  return name === 'mqttclients' ? { owner: endingWith(account, '^device ') } : { account };
}

/** Matches identifiers of an account. */
function endingWith(account: string, beginning = ''): RegExp {
  return new RegExp(`${beginning}.*@${account.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}$`, 's');
}

/** Deletes what only these documents lead to. */
async function deleteDependents(
  { access: { collection } }: ToolConnection,
  name: string,
  documents: readonly StoredDocument[],
): Promise<void> {
  const ids = { $in: documents.map(({ _id }) => _id) };
  if (name === device.plural) {
    // a batch of streams, and so its review, may be of several accounts
    const reviews = collection(valuereview.plural);
    await reviews.updateMany({ devices: ids }, { $pull: { devices: ids } } as object);
    await reviews.deleteMany({ devices: [] });
  } else if (name === 'mqtt_sessions') {
    const $or = documents.map(({ session }) => ({ _id: withPrefix(String(session)) }));
    for (const queue of ['mqtt_queue', 'mqtt_received']) await collection(queue).deleteMany({ $or } as object);
  } else if (name === apikey.plural)
    await collection('mqttclients').deleteMany({ owner: { $in: documents.map(({ id }) => `key ${id}`) } });
  else if (name === 'bulkchanges') await collection(name).deleteMany({ root: ids });
}

/** Deletes the documents of an account once. @returns their number */
async function deleteDocuments(
  connection: ToolConnection,
  account: string,
  showProgress: (deleted: number) => void,
): Promise<number> {
  const { db, access } = connection;
  const listed = await db.listCollections({ type: 'collection' }, { nameOnly: true }).toArray();
  const names = listed.map(({ name }) => name).filter((name) => !name.startsWith('system.'));
  const first = new Set(firstCollections.map(storedNameOf));
  const others = names.filter((name) => !first.has(name));
  let deleted = 0;
  for (const name of [...firstCollections, ...others]) {
    deleted += await deleteInChunks(access.collection(name), selectDocuments(name, account), {
      projection: { id: 1, session: 1 },
      maxTimeMS: 0,
      async beforeDelete(documents) {
        await deleteDependents(connection, name, documents);
        showProgress(documents.length);
      },
    });
  }
  return deleted;
}

const marksOf = ({ access }: ToolConnection): Collection<RemovalMark> => access.collection('maintenance');
const markOf = (account: string): RemovalMark => ({ _id: `remove ${account}` });

/** An account, as operators see it. */
export interface AccountSummary {
  account: string;
  devices: number;
  /** A removal was interrupted. */
  isBeingRemoved: boolean;
}

/** Lists all accounts, and those whose removal was interrupted. */
export async function listAccounts(connection: ToolConnection): Promise<AccountSummary[]> {
  const { access } = connection;
  const marks = await marksOf(connection)
    .find({ _id: /^remove / })
    .toArray();
  const removed = new Set(marks.map(({ _id }) => _id.slice('remove '.length)));
  const accounts = [...new Set([...(await findAccounts(access)), ...removed])].sort();
  return Promise.all(
    accounts.map(async (account) => {
      const devices = await access.collection(device.plural).countDocuments({ account });
      return { account, devices, isBeingRemoved: removed.has(account) };
    }),
  );
}

/**
 * Removes an account with everything it has. Interrupted, it is completed by another call, which needs no confirmation.
 * @param confirmed number of devices that the caller expects @returns documents that were deleted
 * @throws StartError for an unknown account, or if it has another number of devices
 */
export async function removeAccount(
  connection: ToolConnection,
  { account, confirmed }: { account: string; confirmed: number | undefined },
  showProgress: (deleted: number) => void,
): Promise<number> {
  const accounts = await listAccounts(connection);
  const found = accounts.find((candidate) => candidate.account === account);
  if (found === undefined) throw new StartError(`there is no account ${account}`);
  if (!found.isBeingRemoved && found.devices !== confirmed)
    throw new StartError(
      `${account} has ${found.devices} devices; to remove it with everything it has: --confirm ${found.devices}`,
    );
  await marksOf(connection).updateOne(markOf(account), { $setOnInsert: markOf(account) }, { upsert: true });
  let total = await deleteDocuments(connection, account, showProgress);
  // what was under way may have been stored since
  for (let isComplete = false; !isComplete; ) {
    await sleep(settle_ms);
    const isLogComplete = await finishLog(connection.access, silentLog, log_limit_ms);
    const deleted = await deleteDocuments(connection, account, showProgress);
    total += deleted;
    isComplete = isLogComplete && deleted === 0;
  }
  await marksOf(connection).deleteOne(markOf(account));
  return total;
}
