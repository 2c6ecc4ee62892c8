import aws4 from 'aws4';
import { decodePercent } from '../../lib/percent-decoding.js';
import { textMatching } from '../../schema/fields/text.js';
import { optional, required } from '../../schema/fields.js';
import { assertStatus, readResponse } from '../egress.js';
import { createProtocolFault, type StorageLimits } from '../limits.js';
import {
  encodePath,
  isSafeRelativePath,
  link_ttl_s,
  type Provider,
  parseEpochSeconds,
  type StoredFile,
} from './provider.js';
import { address, folder, secret, token } from './settings.js';
import { readXml } from './xml.js';

const bucketName = /^[A-Za-z0-9_-](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9_-])?$/;
const page_size = 1000;
/** For servers that ignore the page size. */
const max_page_length = 10_000;

/** Any storage with the API of Amazon S3, with path-style addresses; its links are presigned. */
export const s3: Provider = {
  name: 's3',
  fields: {
    endpoint: required(address(), {
      about: 'Of s3: Amazon S3 or anything with its interface.',
      example: 'https://s3.example',
    }),
    region: required(token(50), { about: 'Of s3.', example: 'eu-west-1' }),
    bucket: required(
      textMatching(63, (value) => bucketName.test(value), 'the name of a bucket', {
        pattern: bucketName.source,
      }),
      { about: 'Of s3.', example: 'fleet-files' },
    ),
    access_key_id: required(token(200), { about: 'Of s3.', example: 'AKIDEXAMPLE' }),
    secret_access_key: required(secret(token(1000)), { about: 'Of s3. Never shown.', example: 'wJalrXUtnFEMI' }),
    prefix: optional(folder(), { about: 'Of s3, optional: folder in the bucket.', example: 'reports/2026' }),
  },
  faultField: { address: 'endpoint', login: 'secret_access_key', folder: 'bucket' },
  open(
    { endpoint = '', region = '', bucket, prefix = '', access_key_id = '', secret_access_key = '' },
    { network },
    account,
  ) {
    const base = new URL(endpoint);
    const bucketPath = `${base.pathname.replace(/\/+$/, '')}/${bucket}`;
    const keyPrefix = prefix.replace(/\/*$/, prefix === '' ? '' : '/');
    const credentials = { accessKeyId: access_key_id, secretAccessKey: secret_access_key };

    function sign(path: string, signQuery: boolean): { path: string; headers: Record<string, string> } {
      const request = { service: 's3', region, method: 'GET', path, headers: { Host: base.host }, signQuery };
      const { path: signedPath = path, headers } = aws4.sign(request, credentials);
      return { path: signedPath, headers: headers as Record<string, string> };
    }

    async function listObjects(maxKeys: number, token: string | undefined, limits: StorageLimits): Promise<Page> {
      const query = new URLSearchParams({ 'list-type': '2', 'max-keys': String(maxKeys), 'encoding-type': 'url' });
      if (keyPrefix !== '') query.set('prefix', keyPrefix);
      if (token !== undefined) query.set('continuation-token', token);
      const { path, headers } = sign(`${bucketPath}?${query}`, false);
      const response = await network.send(new URL(path, base), {
        account,
        method: 'GET',
        headers,
        signal: limits.signal,
      });
      await assertStatus(response, 200);
      return parsePage(readResponse(response, limits), keyPrefix);
    }

    return {
      async check(limits) {
        await listObjects(1, undefined, limits);
      },
      async *files(limits) {
        let token: string | undefined;
        do {
          const page = await listObjects(page_size, token, limits);
          yield page.files;
          token = page.token;
        } while (token !== undefined);
      },
      async links(files) {
        return files.map(({ path }) => {
          const unsigned = `${bucketPath}/${encodePath(keyPrefix + path)}?X-Amz-Expires=${link_ttl_s}`;
          return base.origin + sign(unsigned, true).path;
        });
      },
    };
  },
};

interface Page {
  files: StoredFile[];
  /** Requests the next page; undefined on the last. */
  token: string | undefined;
}

const readProperties = new Set(['Key', 'Size', 'LastModified']);

/** Parses a response to ListObjectsV2, without placeholders of folders and keys that no URL can name. */
async function parsePage(body: AsyncIterable<Buffer>, keyPrefix: string): Promise<Page> {
  const objects: Map<string, string>[] = [];
  let token: string | undefined;
  let isTruncated = false;
  let isEncoded = false;
  let object = new Map<string, string>();
  await readXml(body, 'ListBucketResult', {
    onOpen(name) {
      if (name === 'Contents') object = new Map();
    },
    onClose(name, text) {
      if (name === 'NextContinuationToken') token = text;
      else if (name === 'IsTruncated') isTruncated = text === 'true';
      else if (name === 'EncodingType') isEncoded = text === 'url';
      else if (name === 'Contents') objects.push(object);
      else if (readProperties.has(name)) object.set(name, text);
      if (objects.length > max_page_length) throw createProtocolFault();
    },
  });
  const files = objects.flatMap((properties) => {
    const sentKey = properties.get('Key') ?? '';
    // the encoding may be announced after the keys
    const key = isEncoded ? decodePercent(sentKey.replaceAll('+', ' ')) : sentKey;
    if (key === undefined || !key.startsWith(keyPrefix) || key.endsWith('/') || !isSafeRelativePath(key)) return [];
    const size = Number(properties.get('Size')) || 0;
    return [
      { path: key.slice(keyPrefix.length), size, modified_at: parseEpochSeconds(properties.get('LastModified')) },
    ];
  });
  return { files, token: isTruncated ? token : undefined };
}
