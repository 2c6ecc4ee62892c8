/** One event of a live feed (server-sent events). */
export interface LiveMessage {
  id: string;
  event: string;
  data: string;
}

/** Splits a `text/event-stream` into messages; comments keep the connection alive and are passed over. */
export async function* readMessages(
  body: ReadableStream<Uint8Array> | null,
  signal: AbortSignal,
): AsyncGenerator<LiveMessage> {
  if (body === null) return;
  const message = { id: '', event: 'message', data: [] as string[] };
  for await (const line of readLines(body, signal)) {
    if (line === '') {
      if (message.data.length > 0) yield { id: message.id, event: message.event, data: message.data.join('\n') };
      message.event = 'message';
      message.data = [];
      continue;
    }
    const [, field, value = ''] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
    if (field === 'data') message.data.push(value);
    else if (field === 'id' || field === 'event') message[field] = value;
  }
}

export async function* readLines(body: ReadableStream<Uint8Array>, signal: AbortSignal): AsyncGenerator<string> {
  const reader = body.pipeThrough(new TextDecoderStream() as TransformStream<Uint8Array, string>).getReader();
  const stop = () => void reader.cancel().catch(() => undefined);
  signal.addEventListener('abort', stop);
  let rest = '';
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const lines = (rest + part.value).split(/\r?\n/);
      rest = lines.pop() ?? '';
      yield* lines;
    }
    if (rest !== '') yield rest;
  } finally {
    signal.removeEventListener('abort', stop);
    stop();
  }
}
