/** A message and the login that publishes it. */
export interface Publication {
  username: string;
  password: string;
  topic: string;
  payload: string;
}

const limit_ms = 10_000;
const client_id_bytes = 8;
const text = new TextEncoder();
const acknowledgement_bytes = 4;
const refusals: Readonly<Record<number, string>> = {
  2: 'The broker refuses the client id.',
  3: 'The broker is not available.',
  4: 'The broker refuses the username or the password.',
  5: 'The broker refuses the username or the password.',
};

/** A text as MQTT writes it: its length in two bytes, then its UTF-8. */
function encodeText(value: string): number[] {
  const bytes = text.encode(value);
  return [bytes.length >> 8, bytes.length & 255, ...bytes];
}

/** Builds a packet (MQTT 3.1.1 §2). */
export function encodePacket(type: number, body: readonly number[]): Uint8Array<ArrayBuffer> {
  const length: number[] = [];
  let rest = body.length;
  do {
    length.push((rest % 128) | (rest >= 128 ? 128 : 0));
    rest = Math.floor(rest / 128);
  } while (rest > 0);
  return Uint8Array.from([type, ...length, ...body]);
}

function encodeConnect({ username, password }: Publication): Uint8Array<ArrayBuffer> {
  const random = crypto.getRandomValues(new Uint8Array(client_id_bytes));
  const client_id = `console-${Array.from(random, (byte) => byte.toString(16).padStart(2, '0')).join('')}`;
  // level 4, a clean session with username and password, 10 s to keep alive
  const head = [...encodeText('MQTT'), 4, 0xc2, 0, 10];
  return encodePacket(0x10, [...head, ...encodeText(client_id), ...encodeText(username), ...encodeText(password)]);
}

/** Publishes at QoS 1 over a WebSocket. @returns after the acknowledgement. @throws Error with the reason in words */
export function publishOnce(url: string, publication: Publication): Promise<void> {
  const socket = new WebSocket(url, 'mqtt');
  socket.binaryType = 'arraybuffer';
  const received: number[] = [];
  return new Promise<void>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error('The broker does not answer.')), limit_ms);
    socket.onopen = () => socket.send(encodeConnect(publication));
    socket.onerror = () => reject(new Error('The broker cannot be reached.'));
    socket.onclose = () => reject(new Error('The broker has closed the connection.'));
    socket.onmessage = ({ data }: MessageEvent<ArrayBuffer>) => {
      const before = received.length;
      received.push(...new Uint8Array(data));
      const code = received[acknowledgement_bytes - 1] ?? 0;
      if (received.length >= acknowledgement_bytes && code !== 0)
        reject(new Error(refusals[code] ?? 'The broker refuses the login.'));
      else if (before < acknowledgement_bytes && received.length >= acknowledgement_bytes) {
        const packet_id = [0, 1];
        const body = [...encodeText(publication.topic), ...packet_id, ...text.encode(publication.payload)];
        socket.send(encodePacket(0x32, body));
      } else if (received.length >= acknowledgement_bytes * 2) {
        socket.send(encodePacket(0xe0, []));
        resolve();
      }
    };
    socket.addEventListener('close', () => clearTimeout(timer));
  }).finally(() => socket.close());
}
