import { pathOf, request } from '../api/client.js';
import { RequestError } from '../api/errors.js';

/** Reports whether a request failed because what it names does not exist. */
export const isMissing = (error: unknown) => error instanceof RequestError && error.code === 4041;

/** Changes the credentials of a device, or creates its first ones. */
export function saveCredentials(id: string, body: Readonly<Record<string, unknown>>): Promise<unknown> {
  const path = pathOf('mqttdevices', id, 'credentials');
  return request('PUT', path, { body }).catch((error: unknown) => {
    if (!isMissing(error)) throw error;
    return request('POST', path, { body });
  });
}

const password_bytes = 18;

/** Makes a random password. */
export function generatePassword(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(password_bytes));
  return btoa(String.fromCharCode(...bytes))
    .replaceAll('+', '-')
    .replaceAll('/', '_');
}
