/** Names in the list envelope, in every format and in the OpenAPI document (reference/lists.md#list-body). */
export const listEnvelope = {
  root: 'response',
  total: 'total_documents',
  metadata: 'metadata',
  items: 'result',
  next: 'next',
} as const;
