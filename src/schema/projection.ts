/** Reads the members of a stored object that are printed by `ComputedMembers.print`; valid during that call only. */
export interface StoredMembers {
  /** A number, or the one found by following `path` into embedded documents: ('location', 'coordinates', '0'). */
  number(key: string, ...path: string[]): number | undefined;
  text(key: string): string | undefined;
  /** BSON type and the bytes of the value, not copied. */
  raw(key: string): { type: number; bytes: Buffer } | undefined;
}

/** Prints members into the object at hand, in any format. */
export interface MemberWriter {
  member(key: string, value: string | number | boolean | null): void;
  /** Prints an object: the members of the BSON document `own` after those of `base` that it lacks. Nothing without both. */
  merged(key: string, base: Uint8Array | undefined, own: Uint8Array | undefined): void;
}

/** What printing needs beyond the stored object. */
export interface ProjectionContext {
  /** Epoch seconds. */
  now: number;
  /** The member that a type inherits (`ListedType.inherits`), as BSON, by identifier of the object it comes from. */
  inherited: ReadonlyMap<string, Uint8Array>;
}

/** Members of a type that are made from stored ones under other names. */
export interface ComputedMembers {
  /** Stored keys that `print` reads; they are not printed by themselves. */
  from: ReadonlySet<string>;
  /** Prints the computed members at the end of the object. */
  print(stored: StoredMembers, out: MemberWriter, context: ProjectionContext): void;
}
