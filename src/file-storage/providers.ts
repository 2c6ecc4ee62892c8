import { dropbox } from './dropbox.js';
import { local } from './local.js';
import type { Provider } from './provider.js';
import { s3 } from './s3.js';
import { webdav } from './webdav.js';

/** Every kind of storage that can be linked, by the name it has in paths. */
export const providers: readonly Provider[] = [s3, webdav, dropbox, local];
