import { createHash, randomBytes } from 'node:crypto';
import { chmod, chown, mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { wordsOf } from '../words.js';
import { answer_timeout_ms, type Choice, choicesOf, type Plan, programOf, startServer } from './servers.js';

export type WebdavKind = 'apache2' | 'rclone' | 'wsgidav';

export interface WebdavServer {
  kind: WebdavKind;
  /** With the prefix, such as `http://127.0.0.1:4711/dav/`. */
  url: string;
  username: string;
  password: string;
  /** The folder served at `url`, for the test to fill; readable by all users. */
  folder: string;
  stop(): Promise<void>;
}

/** The shared folder is `root`/`prefix`; `place` holds the server's other files. */
interface Share {
  port: number;
  place: string;
  root: string;
  prefix: string;
  folder: string;
  username: string;
  password: string;
}

/** Apache refuses to run as root; a number, as names of users without rights differ. */
const nobody_uid = 65_534;

/** All kinds, with those that cannot be started here. */
export function webdavServers(): Choice<WebdavKind>[] {
  return choicesOf({ apache2: 'apache2', rclone: 'rclone', wsgidav: 'wsgidav' });
}

/** A real WebDAV server with Basic authentication on 127.0.0.1, ready when this returns. `prefix` begins and ends with a slash. */
export async function startWebdav(options: {
  kind: WebdavKind;
  prefix?: string;
  username?: string;
  password?: string;
}): Promise<WebdavServer> {
  const { kind, prefix = '/dav/', username = 'fleet', password = `+/ %:${randomBytes(12).toString('hex')}` } = options;
  const place = await mkdtemp(join(tmpdir(), 'webdav-'));
  const root = join(place, 'root');
  const folder = join(root, prefix);
  await mkdir(folder, { recursive: true });
  const authorization = `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
  try {
    const { port, stop } = await startServer(async (port) => {
      const plan = await plans[kind]({ port, place, root, prefix, folder, username, password });
      const isUp = async () => {
        const headers = { Authorization: authorization, Depth: '0' };
        const signal = AbortSignal.timeout(answer_timeout_ms);
        const answer = await fetch(`http://127.0.0.1:${port}${prefix}`, { method: 'PROPFIND', headers, signal });
        await answer.arrayBuffer();
        return answer.status === 207;
      };
      return { ...plan, isUp };
    });
    return {
      kind,
      url: `http://127.0.0.1:${port}${prefix}`,
      username,
      password,
      folder,
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

const plans: Record<WebdavKind, (share: Share) => Promise<Omit<Plan, 'isUp'>>> = {
  async apache2({ port, place, root, username, password }) {
    const { path, folder: modules = '' } = programOf('apache2');
    // those that distributions build in are not there as files
    const wanted = wordsOf('unixd mpm_event authn_core authn_file authz_core authz_user auth_basic dav dav_fs');
    const there = await readdir(modules);
    const load = wanted
      .filter((name) => there.includes(`mod_${name}.so`))
      .map((name) => `LoadModule ${name}_module "${join(modules, `mod_${name}.so`)}"`);
    const hash = createHash('sha1').update(password).digest('base64');
    await writeFile(join(place, 'users'), `${username}:{SHA}${hash}\n`);
    const config = [
      `ServerRoot "${place}"`,
      'ServerName 127.0.0.1',
      `Listen 127.0.0.1:${port}`,
      `DefaultRuntimeDir "${place}"`,
      'PidFile apache.pid',
      'ErrorLog error.log',
      ...load,
      'StartServers 1',
      `DocumentRoot "${root}"`,
      'DavLockDB locks',
      `<Directory "${root}">`,
      'Dav On',
      'AuthType Basic',
      'AuthName storage',
      'AuthBasicProvider file',
      'AuthUserFile users',
      'Require valid-user',
      '</Directory>',
    ];
    await writeFile(join(place, 'apache.conf'), `${config.join('\n')}\n`);
    const uid = process.getuid?.() === 0 ? nobody_uid : undefined;
    if (uid !== undefined) await giveTo(uid, place);
    return { command: path, args: ['-f', join(place, 'apache.conf'), '-D', 'FOREGROUND'], uid };
  },

  async rclone({ port, prefix, folder, username, password }) {
    const serve = ['serve', 'webdav', '--addr', `127.0.0.1:${port}`, '--baseurl', prefix];
    // files come from outside, so nothing may be remembered for long; 0s makes it forget without end
    const fresh = ['--config', '/dev/null', '--dir-cache-time', '100ms', '--vfs-cache-mode', 'off'];
    return {
      command: programOf('rclone').path,
      args: [...serve, ...fresh, '--user', username, '--pass', password, folder],
    };
  },

  async wsgidav({ port, place, prefix, folder, username, password }) {
    const { path, folder: packages = '' } = programOf('wsgidav');
    const config = {
      host: '127.0.0.1',
      port,
      provider_mapping: { [prefix.replace(/(?<=.)\/$/, '')]: folder },
      simple_dc: { user_mapping: { '*': { [username]: { password } } } },
      http_authenticator: { accept_basic: true, accept_digest: false, default_to_digest: false },
    };
    await writeFile(join(place, 'wsgidav.json'), JSON.stringify(config));
    return {
      command: path,
      args: ['-m', 'wsgidav.server.server_cli', '--config', join(place, 'wsgidav.json')],
      env: { PYTHONPATH: packages },
    };
  },
};

async function giveTo(uid: number, place: string): Promise<void> {
  const entries = await readdir(place, { recursive: true });
  for (const path of [place, ...entries.map((entry) => join(place, entry))]) await chown(path, uid, uid);
  await chmod(place, 0o755);
}
