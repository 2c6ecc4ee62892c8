import { randomUUID } from 'node:crypto';
import { type Clients, createClients, password } from './mqtt.js';
import { findFreePort, type RunningService, type Sandbox } from './process.js';
import { pathOf } from './service.js';

/** A service with a broker in a process of its own. */
export interface MqttProcess extends RunningService, Pick<Clients, 'connect' | 'refusal'> {
  mqtt_port: number;
  /** A device with credentials and topics; its username is its identifier. */
  device(topics?: readonly string[]): Promise<string>;
  /** The data of the streams of a device, oldest first. */
  streams(device: string): Promise<unknown[]>;
}

/** Services that share an empty database. */
export interface MqttProcesses {
  uri: string;
  start(env?: NodeJS.ProcessEnv): Promise<MqttProcess>;
  /** Ends all clients. */
  close(): void;
}

/** Prepares services on a fresh database of the mongod of the tests. */
export function createMqttProcesses(sandbox: Sandbox): MqttProcesses {
  const address = new URL(process.env.TEST_MONGODB_URI ?? '');
  address.pathname = `/test-${randomUUID()}`;
  const uri = address.href;
  const key = randomUUID() + randomUUID();
  const clients: Clients[] = [];
  let group: Promise<string> | undefined;
  let names = 0;

  async function createGroup(service: RunningService): Promise<string> {
    const id_project = await service.create('projects', { name: 'project', id_customer: 'c' });
    const id_service = await service.create('services', { name: 'service', id_project });
    return service.create('groups', { name: 'group', id_service });
  }

  return {
    uri,
    async start(env = {}) {
      const mqtt_port = await findFreePort();
      const service = await sandbox.service({
        MONGODB_URI: uri,
        MQTT_PORT: String(mqtt_port),
        SECRET_KEY: key,
        BOOTSTRAP_API_KEY: key,
        ...env,
      });
      const connections = createClients(`mqtt://127.0.0.1:${mqtt_port}`);
      clients.push(connections);
      return {
        ...service,
        key,
        mqtt_port,
        connect: connections.connect,
        refusal: connections.refusal,
        async device(topics = []) {
          group ??= createGroup(service);
          const { headers } = await service.send('POST', '/devices/', {
            name: `device ${++names}`,
            type: 'gateway',
            id_group: await group,
          });
          const id = decodeURIComponent(headers.location?.split('/').at(-2) ?? '');
          const path = pathOf('mqttdevices', id);
          await service.send('POST', `${path}credentials/`, { username: id, password });
          for (const name of topics) await service.send('POST', `${path}topics/`, { name });
          return id;
        },
        async streams(device) {
          const { body } = await service.send('GET', `${pathOf('devices', device)}streams/?sort=created_at`);
          return body.result.map(({ data }: { data: unknown }) => data);
        },
      };
    },
    close() {
      for (const connections of clients) connections.close();
    },
  };
}
