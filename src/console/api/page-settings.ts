/** The content of a `meta` element of the page, which the service fills in. */
function readMeta(name: string): string {
  return document.querySelector<HTMLMetaElement>(`meta[name="${name}"]`)?.content ?? '';
}

const prefix = readMeta('prefix');
const issuer = readMeta('oidc-issuer');

/** Addresses that depend on the installation. `base` is set once the description of the interface has been read. */
export const pageSettings = {
  /** Path of the service, when a proxy serves it below another one. */
  prefix,
  /** Path of {base_url}. */
  base: prefix,
  /** Template of map tiles; empty: the built-in outline of the world. */
  tiles: readMeta('tiles'),
  /** Port of the MQTT broker; empty: there is none. */
  mqtt_port: readMeta('mqtt-port'),
  /** The issuer at which users can sign in. */
  oidc:
    issuer === ''
      ? undefined
      : {
          issuer,
          client_id: readMeta('oidc-client-id'),
          scope: readMeta('oidc-scope'),
          claim: readMeta('oidc-claim'),
        },
};
