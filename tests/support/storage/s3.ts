import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import aws4 from 'aws4';
import { answer_timeout_ms, type Choice, choicesOf, type Plan, programOf, startServer } from './servers.js';

export type S3Kind = 'versitygw' | 'rclone';

export interface S3Server {
  kind: S3Kind;
  endpoint: string;
  region: string;
  bucket: string;
  access_key_id: string;
  secret_access_key: string;
  /** Stores an object, as a client does. */
  put(key: string, body: string | Uint8Array<ArrayBuffer>): Promise<void>;
  stop(): Promise<void>;
}

/** All kinds, with those that cannot be started here. Each refuses wrong signatures, of headers and of addresses. */
export function s3Servers(): Choice<S3Kind>[] {
  return choicesOf({ versitygw: 'versitygw', rclone: 'rclone s3' });
}

/** A real S3 server on 127.0.0.1 with one empty bucket, ready when this returns. rclone does not look at the region. */
export async function startS3(options: { kind: S3Kind }): Promise<S3Server> {
  const { kind } = options;
  const place = await mkdtemp(join(tmpdir(), 's3-'));
  const [region, bucket] = ['eu-central-1', 'fleet-files'];
  const access_key_id = `AK${randomBytes(9).toString('hex').toUpperCase()}`;
  const secret_access_key = `${randomBytes(15).toString('hex')}+/A`;
  const credentials = { accessKeyId: access_key_id, secretAccessKey: secret_access_key };

  const send = async (port: number, method: string, path: string, body?: string | Uint8Array<ArrayBuffer>) => {
    const host = `127.0.0.1:${port}`;
    const content = body === undefined ? {} : { body: Buffer.from(body as string) };
    const signed = aws4.sign({ service: 's3', region, host, method, path, ...content }, credentials);
    const { Host: _, ...headers } = signed.headers as Record<string, string>;
    const signal = AbortSignal.timeout(answer_timeout_ms);
    const answer = await fetch(`http://${host}${path}`, { method, headers, body: body ?? null, signal });
    return { status: answer.status, text: await answer.text() };
  };
  const create = async (port: number) => [200, 409].includes((await send(port, 'PUT', `/${bucket}`)).status);

  try {
    await mkdir(join(place, 'data'));
    await mkdir(join(place, 'metadata'));
    const { port, stop } = await startServer((port) => {
      const plan = plans[kind]({ port, place, region, access_key_id, secret_access_key });
      return { ...plan, isUp: () => create(port) };
    });
    return {
      kind,
      endpoint: `http://127.0.0.1:${port}`,
      region,
      bucket,
      access_key_id,
      secret_access_key,
      async put(key, body) {
        const { status, text } = await send(port, 'PUT', `/${bucket}/${key.split('/').map(encoded).join('/')}`, body);
        if (status !== 200) throw new Error(`${kind} answers ${status} to the PUT of ${key}: ${text}`);
      },
      async stop() {
        await stop();
        await rm(place, { recursive: true, force: true });
      },
    };
  } catch (error) {
    await rm(place, { recursive: true, force: true });
    throw error;
  }
}

const plans: Record<
  S3Kind,
  (given: {
    port: number;
    place: string;
    region: string;
    access_key_id: string;
    secret_access_key: string;
  }) => Omit<Plan, 'isUp'>
> = {
  versitygw({ port, place, region, access_key_id, secret_access_key }) {
    const account = ['--access', access_key_id, '--secret', secret_access_key, '--region', region];
    // not every file system has the extended attributes that it keeps metadata in otherwise
    const backend = ['posix', '--sidecar', join(place, 'metadata'), join(place, 'data')];
    return {
      command: programOf('versitygw').path,
      args: [...account, '--port', `127.0.0.1:${port}`, '--quiet', ...backend],
    };
  },

  rclone({ port, place, access_key_id, secret_access_key }) {
    const serve = ['serve', 's3', '--addr', `127.0.0.1:${port}`, '--auth-key', `${access_key_id},${secret_access_key}`];
    const plain = ['--config', '/dev/null', '--vfs-cache-mode', 'off'];
    return { command: programOf('rclone s3').path, args: [...serve, ...plain, join(place, 'data')] };
  },
};

/** As the signature wants it: all but letters, digits and `-._~`. */
function encoded(segment: string): string {
  return encodeURIComponent(segment).replace(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`);
}
