/** Compares JSON values; the order of keys does not count. */
export function isDeepEqual(left: unknown, right: unknown): boolean {
  if (left === right) return true;
  if (typeof left !== 'object' || typeof right !== 'object' || left === null || right === null) return false;
  if (Array.isArray(left) !== Array.isArray(right)) return false;
  const keys = Object.keys(left);
  return (
    keys.length === Object.keys(right).length &&
    keys.every((key) => Object.hasOwn(right, key) && isDeepEqual(Reflect.get(left, key), Reflect.get(right, key)))
  );
}

/** A line of a comparison of two texts. */
export interface DiffLine {
  kind: 'same' | 'added' | 'removed';
  text: string;
}

/** Larger texts are not compared line by line: the table would take too much memory. */
export const max_diff_lines = 2000;

/** Compares two texts by the longest common subsequence of their lines. @returns undefined if one is too long */
export function compareLines(before: string, after: string): DiffLine[] | undefined {
  const [old, young] = [before.split('\n'), after.split('\n')];
  if (old.length > max_diff_lines || young.length > max_diff_lines) return undefined;
  const width = young.length + 1;
  const lengths = new Uint16Array((old.length + 1) * width);
  const at = (row: number, column: number) => lengths[row * width + column] ?? 0;
  for (let row = old.length - 1; row >= 0; row--)
    for (let column = young.length - 1; column >= 0; column--)
      lengths[row * width + column] =
        old[row] === young[column] ? at(row + 1, column + 1) + 1 : Math.max(at(row + 1, column), at(row, column + 1));
  const lines: DiffLine[] = [];
  let [row, column] = [0, 0];
  while (row < old.length || column < young.length) {
    if (row < old.length && column < young.length && old[row] === young[column]) {
      lines.push({ kind: 'same', text: old[row++] ?? '' });
      column++;
    } else if (column >= young.length || (row < old.length && at(row + 1, column) >= at(row, column + 1)))
      lines.push({ kind: 'removed', text: old[row++] ?? '' });
    else lines.push({ kind: 'added', text: young[column++] ?? '' });
  }
  return lines;
}
