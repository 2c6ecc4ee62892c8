/** One page of a list. */
export interface ListAnswer<T> {
  total_documents: number;
  result: T[];
}
