import type { LimitField } from '../resources/api-key.js';
import type { Id } from './ids.js';

/** The object that a key is limited to, with everything below it (reference/access.md#limited-keys). */
export interface KeyLimit {
  /** The field that names it. */
  field: LimitField;
  /** Its collection. */
  plural: string;
  _id: Id;
  id_developer: string;
}
