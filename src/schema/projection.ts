/** The stored members that `ComputedMembers.from` names; valid during the call of `print` only. */
export interface StoredMembers {
  /** A number, or the one found by following `path` into embedded documents: ('location', 'coordinates', '0'). */
  number(key: string, ...path: string[]): number | undefined;
  text(key: string): string | undefined;
  /** BSON type and the bytes of the value, not copied. */
  raw(key: string): { type: number; bytes: Buffer } | undefined;
  /** The BSON of the document. */
  readonly source: Buffer;
  /** Position of the value in `source`, with `place` of the one at this place of the embedded document; -1 if there is none. */
  start(key: string, place?: number): number;
  /** Writes the value at that position as member `name`, if there is one. */
  show(name: string, out: MemberWriter, key: string, place?: number): void;
}

/** Prints members into the current object, in any format. */
export interface MemberWriter {
  member(key: string, value: string | number | boolean | null): void;
  /** Prints the BSON value at `at` in `source`. */
  stored(key: string, source: Uint8Array, type: number, at: number): void;
  /** Prints ASCII text that needs no escape in any format: `bytes` up to `length`. */
  ascii(key: string, bytes: Uint8Array, length: number): void;
  /** Prints the BSON document `base` overridden by `own`; nothing if both are undefined. */
  merged(key: string, base: Uint8Array | undefined, own: Uint8Array | undefined): void;
}

/** Input of `print` in addition to the stored object. */
export interface ProjectionContext {
  /** Epoch seconds. */
  now: number;
  /** The inherited member (`ListedType.inherits`) as BSON, by identifier of the object that it is inherited from. */
  inherited: ReadonlyMap<string, Uint8Array>;
  /** The members in `ListedType.requested` of the object to write, as BSON. */
  requested?: ReadonlyMap<string, Uint8Array> | undefined;
}

/** Members of responses that are computed from stored members of other names. */
export interface ComputedMembers {
  /** Stored keys that `print` reads; they are not printed as stored. */
  from: ReadonlySet<string>;
  /** Prints the computed members at the end of the object. */
  print(stored: StoredMembers, out: MemberWriter, context: ProjectionContext): void;
}
