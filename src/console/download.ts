const revoke_delay_ms = 10_000;

/** Lets the browser store content under a name. */
export function downloadBlob(content: Blob, name: string): void {
  const url = URL.createObjectURL(content);
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), revoke_delay_ms);
}
