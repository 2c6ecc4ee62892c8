/** Reads the payload of a JWT. @returns an empty object if it is none */
export function readPayload(token: string): Readonly<Record<string, unknown>> {
  try {
    const [, payload = ''] = token.split('.');
    const bytes = Uint8Array.from(atob(payload.replaceAll('-', '+').replaceAll('_', '/')), (sign) =>
      sign.charCodeAt(0),
    );
    const value: unknown = JSON.parse(new TextDecoder().decode(bytes));
    return typeof value === 'object' && value !== null ? { ...value } : {};
  } catch {
    return {};
  }
}

/** Chooses the token for requests: the first with the claim, which issuers put into one or the other. */
export function chooseBearer(tokens: readonly (string | undefined)[], claim: string): string {
  const names = claim.startsWith('/')
    ? claim
        .slice(1)
        .split('/')
        .map((name) => name.replaceAll('~1', '/').replaceAll('~0', '~'))
    : claim.split('.');
  const issued = tokens.filter((token) => token !== undefined);
  const holdsClaim = (token: string) =>
    names.reduce<unknown>((value, name) => {
      return typeof value === 'object' && value !== null && Object.hasOwn(value, name)
        ? Reflect.get(value, name)
        : undefined;
    }, readPayload(token)) !== undefined;
  return issued.find(holdsClaim) ?? issued[0] ?? '';
}
