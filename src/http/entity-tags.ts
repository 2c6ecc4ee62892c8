import { AppError } from '../errors.js';

/** The version in one of our entity tags, weak or not; what follows it is a digest, or what a proxy adds: `"2-gzip"`. */
const versionTag = /^(?:W\/)?"(\d{1,15})(?:[.-][^"]*)?"$/;

/**
 * Parses `If-Match` (reference/requests.md#entity-tags). @returns a function from the version of an update to those it accepts;
 * if it names one too, both must match @throws AppError badParameter (4004)
 */
export function parseIfMatch(header: string | undefined): (version?: number) => readonly number[] | undefined {
  const tags = header === undefined ? ['*'] : splitTags(header);
  const named = tags.filter((tag) => tag !== '*').map((tag) => versionTag.exec(tag)?.[1]);
  if (tags.length === 0 || named.includes(undefined))
    throw new AppError('badParameter', { 'If-Match': 'must be an ETag with its quotes, several, or *' });
  const versions = tags.includes('*') ? undefined : named.map(Number);
  return (version) => {
    if (version === undefined) return versions;
    return versions?.includes(version) === false ? [] : [version];
  };
}

/** Compares `If-None-Match` with an entity tag, weakly (RFC 9110 §13.1.2), and without what proxies add to it. */
export function isNotModified(header: string | undefined, tag: unknown): boolean {
  if (header === undefined || typeof tag !== 'string') return false;
  const extended = `${tag.slice(0, -1)}-`;
  return splitTags(header)
    .map((candidate) => candidate.replace(/^W\//, ''))
    .some((candidate) => candidate === '*' || candidate === tag || candidate.startsWith(extended));
}

/** Splits a list of entity tags; empty members count for nothing (RFC 9110 §5.6.1). */
function splitTags(header: string): string[] {
  return header
    .split(',')
    .map((tag) => tag.trim())
    .filter((tag) => tag !== '');
}
