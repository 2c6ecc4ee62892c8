import { once } from 'node:events';
import { type ClientRequest, request } from 'node:http';
import { expect, it } from '@jest/globals';
import { issueKey } from '../../../src/objects/api-keys.js';
import { useTestService } from '../../support/expect-status.js';
import { waitUntil } from '../../support/process.js';

// refused imports are logged as errors
const ctx = await useTestService({ log: { info() {}, warn() {}, error() {} } });

/** Begins an import, and again whenever it is ended, of which a byte comes twice a second. @returns ends it */
function trickle(key: string): () => void {
  let isEnded = false;
  let current: ClientRequest | undefined;
  const begin = () => {
    const headers = { 'service.apikey': key, 'Transfer-Encoding': 'chunked' };
    current = request(`${ctx.service.url}/import/?resource=model`, { method: 'POST', headers });
    current.on('error', () => undefined);
    current.on('response', (response) => response.resume().on('error', () => undefined));
    current.once('close', () => {
      if (!isEnded) setTimeout(begin, 100);
    });
    current.write('{');
  };
  begin();
  const timer = setInterval(() => current?.write(' '), 500);
  return () => {
    isEnded = true;
    clearInterval(timer);
    current?.destroy();
  };
}

it('lets the import of an account wait until those of others that trickle lose their memory', async () => {
  const { db, url } = ctx.service;
  const issue = async (account: string) => (await issueKey(db, { account, username: 'bob', scope: 'write' }, 0)).key;
  const keys = [await issue('one'), await issue('two')];
  const ends = keys.flatMap((key) => Array.from({ length: 5 }, () => trickle(key)));
  const sent = request(`${url}/import/?resource=model`, {
    method: 'POST',
    headers: { 'service.apikey': await issue('three') },
  });
  // an account that has its part of the memory is refused at once
  for (const key of keys) {
    const headers = { 'service.apikey': key };
    const refused = { method: 'POST', headers, body: '{"name":"a"}\n' };
    const send = async () => (await fetch(`${url}/import/?resource=model`, refused)).text();
    await waitUntil(async () => (await send()).includes('"code":5033'));
  }
  sent.end('{"name":"waited"}\n');
  const [response] = await once(sent, 'response');
  const lines: string[] = [];
  for await (const part of response.setEncoding('utf8')) lines.push(part);
  for (const end of ends) end();
  expect([response.statusCode, JSON.parse(lines.join('').split('\n')[0] ?? '')]).toEqual([
    200,
    { line: 1, code: 2001, id_developer: 'waited@three' },
  ]);
}, 60_000);
