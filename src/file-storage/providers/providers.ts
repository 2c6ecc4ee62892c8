import { dropbox } from './dropbox.js';
import { local } from './local.js';
import type { Provider } from './provider.js';
import { s3 } from './s3.js';
import { webdav } from './webdav.js';

/** All kinds of storage; their names are part of the paths. */
export const providers: readonly Provider[] = [s3, webdav, dropbox, local];
