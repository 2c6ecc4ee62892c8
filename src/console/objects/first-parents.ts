import { request, send } from '../api/client.js';
import type { ListAnswer } from '../api/list-answer.js';

const name = 'Default';

/** Creates an object. @returns its identifier */
export async function createObject(path: string, body: object): Promise<string> {
  const response = await send('POST', path, { body });
  return decodeURIComponent(response.headers.get('Location')?.split('/').at(-2) ?? '');
}

/** Creates the first group of an account, with what it needs above it. @returns undefined if there are groups */
export async function createFirstGroup(): Promise<string | undefined> {
  const { total_documents } = await request<ListAnswer<unknown>>('GET', '/groups/', { query: { max: 1 } });
  if (total_documents > 0) return undefined;
  const id_project = await findOrCreate('/projects/', { name, id_customer: name });
  const id_service = await findOrCreate('/services/', { name, id_project });
  return createObject('/groups/', { name, id_service });
}

/** Finds what an attempt before has left. */
async function findOrCreate(path: string, body: object): Promise<string> {
  const query = { name, max: 1, fields: 'id_developer' };
  const { result } = await request<ListAnswer<{ id_developer: string }>>('GET', path, { query });
  return result[0]?.id_developer ?? createObject(path, body);
}
