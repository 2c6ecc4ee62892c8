import type { ProjectionContext } from '../../schema/projection.js';
import { writeObject } from '../../serialize/object.js';
import type { Projection } from '../../serialize/projections.js';

const lineEnd = Buffer.from('\n\n');
const context: ProjectionContext = { now: 0, inherited: new Map() };

/** Formats a stored document as a server-sent event: its JSON, which has no line breaks, as a list shows it. */
export function formatFrame(id: string, event: string, bson: Uint8Array, projection: Projection<ProjectionContext>) {
  const head = Buffer.from(`id: ${id}\nevent: ${event}\ndata: `);
  return Buffer.concat([head, writeObject(bson, projection, 'json', context), lineEnd]);
}

/** Formats a comment with the id to resume at, which a reader stores without seeing an event. */
export function formatHeartbeat(id: string): Buffer {
  return Buffer.from(`:\nid: ${id}\n\n`);
}

/** The last event of a reader that is too far behind. */
export const overflowFrame = Buffer.from('event: overflow\ndata: {}\n\n');
