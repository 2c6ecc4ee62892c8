import aws4 from 'aws4';
import { textMatching } from '../schema/fields/text.js';
import { optional, required } from '../schema/fields.js';
import { bodyOf, mustAnswer } from './egress.js';
import type { StorageLimits } from './limits.js';
import { encodedPath, epochSeconds, links_last_s, type Provider, type StoredFile, staysBelow } from './provider.js';
import { address, folder, secret, token } from './settings.js';
import { readXml } from './xml.js';

const bucketName = /^[A-Za-z0-9_-](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9_-])?$/;
const page_size = 1000;

/** Any storage with the interface of Amazon S3, addressed by path; its links are presigned. */
export const s3: Provider = {
  name: 's3',
  fields: {
    endpoint: required(address()),
    region: required(token(50)),
    bucket: required(
      textMatching(63, (given) => bucketName.test(given), 'the name of a bucket', {
        pattern: bucketName.source,
        examples: ['fleet-files'],
      }),
    ),
    access_key_id: required(token(200)),
    secret_access_key: required(secret(token(1000))),
    prefix: optional(folder()),
  },
  faultField: { address: 'endpoint', login: 'secret_access_key', folder: 'bucket' },
  open({ endpoint = '', region = '', bucket, prefix = '', access_key_id = '', secret_access_key = '' }, { network }) {
    const base = new URL(endpoint);
    const root = `${base.pathname.replace(/\/+$/, '')}/${bucket}`;
    const within = prefix.replace(/\/*$/, prefix === '' ? '' : '/');
    const credentials = { accessKeyId: access_key_id, secretAccessKey: secret_access_key };

    function signed(path: string, signQuery: boolean): { path: string; headers: Record<string, string> } {
      const request = { service: 's3', region, method: 'GET', path, headers: { Host: base.host }, signQuery };
      const { path: target = path, headers } = aws4.sign(request, credentials);
      return { path: target, headers: headers as Record<string, string> };
    }

    async function page(most: number, token: string | undefined, bounds: StorageLimits): Promise<Page> {
      const query = new URLSearchParams({ 'list-type': '2', 'max-keys': String(most), 'encoding-type': 'url' });
      if (within !== '') query.set('prefix', within);
      if (token !== undefined) query.set('continuation-token', token);
      const { path, headers } = signed(`${root}?${query}`, false);
      const answer = await network.send(new URL(path, base), { method: 'GET', headers, signal: bounds.signal });
      await mustAnswer(answer, 200);
      return readPage(bodyOf(answer, bounds), within);
    }

    return {
      async check(bounds) {
        await page(1, undefined, bounds);
      },
      async *files(bounds) {
        for (let next: string | undefined, first = true; first || next !== undefined; first = false) {
          const { files, token } = await page(page_size, next, bounds);
          yield files;
          next = token;
        }
      },
      async links(files) {
        return files.map(({ path }) => {
          const unsigned = `${root}/${encodedPath(within + path)}?X-Amz-Expires=${links_last_s}`;
          return base.origin + signed(unsigned, true).path;
        });
      },
    };
  },
};

interface Page {
  files: StoredFile[];
  /** Asks for the next page; undefined with the last. */
  token: string | undefined;
}

/** An answer to ListObjectsV2. Left out is what stands for a folder, and keys that no address can name. */
async function readPage(body: AsyncIterable<Buffer>, within: string): Promise<Page> {
  const files: StoredFile[] = [];
  let token: string | undefined;
  let truncated = false;
  let encoded = false;
  let object: Record<string, string> = {};
  await readXml(body, 'ListBucketResult', {
    opened(name) {
      if (name === 'Contents') object = {};
    },
    closed(name, text) {
      if (name === 'NextContinuationToken') token = text;
      else if (name === 'IsTruncated') truncated = text === 'true';
      else if (name === 'EncodingType') encoded = text === 'url';
      else if (name === 'Contents') files.push({ path: object.Key ?? '', ...factsOf(object) });
      else object[name] = text;
    },
  });
  const kept = files
    .map((file) => ({ ...file, path: encoded ? decodedKey(file.path) : file.path }))
    .filter(({ path }) => path.startsWith(within) && !path.endsWith('/') && staysBelow(path))
    .map((file) => ({ ...file, path: file.path.slice(within.length) }));
  return { files: kept, token: truncated ? token : undefined };
}

function factsOf({ Size, LastModified }: Record<string, string>): { size: number; modified_at: number } {
  return { size: Number(Size) || 0, modified_at: epochSeconds(LastModified) };
}

/** What is not decodable stays out, as a folder would. */
function decodedKey(key: string): string {
  try {
    return decodeURIComponent(key.replaceAll('+', ' '));
  } catch {
    return '/';
  }
}
