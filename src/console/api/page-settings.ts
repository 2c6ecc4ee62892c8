/** The content of a `meta` element of the page, which the service fills in. */
function readMeta(name: string): string {
  return document.querySelector<HTMLMetaElement>(`meta[name="${name}"]`)?.content ?? '';
}

const prefix = readMeta('prefix');
const issuer = readMeta('oidc-issuer');
const ports = { mqtt_port: readMeta('mqtt-port'), mqtts_port: readMeta('mqtts-port') };

/** Addresses that depend on the installation. `base` is set once the description of the interface has been read. */
export const pageSettings = {
  /** Path of the service, when a proxy serves it below another one. */
  prefix,
  /** Path of {base_url}. */
  base: prefix,
  /** Template of map tiles; empty: the built-in outline of the world. */
  tiles: readMeta('tiles'),
  /** Ports of the MQTT broker, without and with TLS; empty: there is none. */
  ...ports,
  hasBroker: ports.mqtt_port + ports.mqtts_port !== '',
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
