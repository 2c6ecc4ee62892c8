import { type DataPath, parseDataPath } from './data-path.js';
import { checkText, max_path_length } from './fields/text.js';
import type { Field, Fields } from './fields.js';

/** The parts of a member of `ListedType.requested` that `fields` names. */
export interface MemberRequest {
  isWhole: boolean;
  /** Paths into the free-form member that the type `leadsTo`. */
  paths: readonly DataPath[];
  /** Its declared members. */
  members: readonly string[];
}

/** Reports whether `fields` may name this member, or a path in it. */
export function isRequestable(requested: Fields, text: string): boolean {
  const { type, path } = split(requested, text);
  if (type === undefined || path === undefined) return type !== undefined;
  return isDeclared(type, path) || parsePath(type.leadsTo, path) !== undefined;
}

/** Parses the names in `fields` that are requested members, by member. */
export function parseRequested(requested: Fields, fields: readonly string[]): ReadonlyMap<string, MemberRequest> {
  const requests = new Map<string, MemberRequest>();
  for (const text of fields) {
    const { key, type, path } = split(requested, text);
    if (type === undefined) continue;
    const { isWhole, paths, members } = requests.get(key) ?? { isWhole: false, paths: [], members: [] };
    const parsed = path === undefined ? undefined : parsePath(type.leadsTo, path);
    requests.set(key, {
      isWhole: isWhole || path === undefined,
      paths: parsed ? [...paths, parsed] : paths,
      members: path !== undefined && isDeclared(type, path) ? [...members, path] : members,
    });
  }
  return requests;
}

/** The columns of CSV that show a name in `fields`; undefined if it is no requested member. */
export function requestedColumnsOf(requested: Fields, text: string): string[] | undefined {
  const { key, type, path } = split(requested, text);
  if (type === undefined) return undefined;
  const members = Object.keys(type.members ?? {}).map((member) => `${key}.${member}`);
  if (path === undefined) return members;
  const always = members.filter((member) => member !== `${key}.${type.leadsTo}`);
  return type.leadsTo === undefined ? [text] : [...always, text];
}

function isDeclared({ members = {}, leadsTo }: Field['type'], path: string): boolean {
  return path !== leadsTo && Object.hasOwn(members, path);
}

function split(requested: Fields, text: string): { key: string; type?: Field['type']; path?: string } {
  const dot = text.indexOf('.');
  const key = dot < 0 ? text : text.slice(0, dot);
  if (!Object.hasOwn(requested, key)) return { key };
  const { type } = requested[key] as Field;
  return { key, type, ...(dot >= 0 && { path: text.slice(dot + 1) }) };
}

function parsePath(leadsTo: string | undefined, text: string): DataPath | undefined {
  if (leadsTo === undefined || checkText(text, 1, max_path_length) !== undefined) return undefined;
  return parseDataPath(text);
}
