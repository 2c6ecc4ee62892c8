/** Reason codes of MQTT 5 (§2.4) that the service sends or reads. */
export const reasons = {
  success: 0x00,
  no_matching_subscribers: 0x10,
  no_subscription_existed: 0x11,
  unspecified: 0x80,
  malformed: 0x81,
  protocol_error: 0x82,
  unsupported_version: 0x84,
  invalid_client_id: 0x85,
  bad_credentials: 0x86,
  not_authorized: 0x87,
  unavailable: 0x88,
  busy: 0x89,
  shutting_down: 0x8b,
  bad_authentication_method: 0x8c,
  keep_alive: 0x8d,
  taken_over: 0x8e,
  invalid_filter: 0x8f,
  invalid_topic: 0x90,
  packet_id_not_found: 0x92,
  receive_maximum: 0x93,
  invalid_topic_alias: 0x94,
  too_large: 0x95,
  quota: 0x97,
  administrative: 0x98,
  invalid_payload: 0x99,
} as const;
export type Reason = (typeof reasons)[keyof typeof reasons];

/** An error of the client that closes its connection. */
export class PacketError extends Error {
  constructor(
    message: string,
    readonly reason: Reason = reasons.malformed,
  ) {
    super(message);
  }
}
