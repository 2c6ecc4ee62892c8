import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { findFreePort, findProgram, startProcess, waitUntilOk } from '../../scripts/support/service-process.js';
import type { Balancer } from './balancer.js';
import { readShipped } from './haproxy.js';

/** The files of nginx and its settings beside a server: it may not run as root, nor in the background. */
const mainConfig = (folder: string, server: string) => `
daemon off;
pid ${folder}/nginx.pid;
error_log stderr;
events {}
http {
  access_log off;
  ${['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((name) => `${name}_temp_path ${folder}/${name};`).join(' ')}
${server}
}
`;

/**
 * Starts nginx with examples/migrate/nginx.conf, without TLS, in front of a service. Files are in `folder`.
 * @throws Error if nginx is not installed
 */
export async function startNginx(folder: string, backend: string): Promise<Pick<Balancer, 'url' | 'close'>> {
  const program = findProgram('nginx');
  if (program === undefined) throw new Error('nginx is not installed');
  const port = await findFreePort();
  const [files, config] = [join(folder, 'nginx'), join(folder, 'nginx.conf')];
  const server = readShipped('examples/migrate/nginx.conf', [
    ['  listen 80;\n', `  listen 127.0.0.1:${port};\n`],
    ['  listen 443 ssl;\n', ''],
    ['  ssl_certificate /etc/ssl/iot.example.org.pem;\n', ''],
    ['  ssl_certificate_key /etc/ssl/iot.example.org.key;\n', ''],
    ['proxy_pass http://127.0.0.1:3000;\n', `proxy_pass ${backend};\n`],
  ]);
  await mkdir(files);
  await writeFile(config, mainConfig(files, server));
  const started = startProcess(program, ['-c', config, '-e', 'stderr'], { env: process.env });
  const url = `http://127.0.0.1:${port}`;
  await waitUntilOk(started, () => `${url}/healthz`);
  return { url, close: () => started.stop() };
}
