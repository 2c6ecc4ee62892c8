/** Encodes a length-prefixed string of an MQTT packet; `content` may be ill-formed UTF-8. */
export function encodeString(content: string | Buffer): Buffer {
  const bytes = Buffer.from(content as string);
  return Buffer.concat([Buffer.from([bytes.length >> 8, bytes.length & 255]), bytes]);
}

/** Encodes an MQTT packet, which may be malformed; `first` holds type and flags. */
export function encodePacket(first: number, ...parts: Buffer[]): Buffer {
  const body = Buffer.concat(parts);
  const header = [first];
  let length = body.length;
  do {
    header.push((length & 127) | (length > 127 ? 128 : 0));
    length >>= 7;
  } while (length > 0);
  return Buffer.concat([Buffer.from(header), body]);
}

/** Encodes a CONNECT packet of MQTT 3.1.1, or of another protocol level, with clean session. */
export function encodeConnect(username: string, password: string, clientId: string, level = 4): Buffer {
  return encodePacket(
    0x10,
    encodeString('MQTT'),
    Buffer.from([level, 0xc2, 0, 60]),
    encodeString(clientId),
    encodeString(username),
    encodeString(password),
  );
}
