/** A server-sent event as a parser hands it out. */
export interface Message {
  id: string;
  event: string;
  // biome-ignore lint/suspicious/noExplicitAny: data of every type
  data: any;
}

/** An open feed. */
export type Follower = Awaited<ReturnType<typeof follow>>;

/** Parses server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation). */
function createParser(dispatch: (message: Message) => void): { push(text: string): void; lastId(): string } {
  let rest = '';
  let [id, event, data] = ['', '', [] as string[]];
  let last_id = '';
  function take(line: string): void {
    if (line === '') {
      last_id = id;
      if (data.length > 0) dispatch({ id, event: event || 'message', data: JSON.parse(data.join('\n')) });
      [event, data] = ['', []];
      return;
    }
    const at = line.indexOf(':');
    if (at === 0) return;
    const name = at < 0 ? line : line.slice(0, at);
    const value = at < 0 ? '' : line.slice(at + 1).replace(/^ /, '');
    if (name === 'id') id = value;
    else if (name === 'event') event = value;
    else if (name === 'data') data.push(value);
    else throw new Error(`not a line of server-sent events: ${line}`);
  }
  return {
    push(text) {
      const lines = (rest + text).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) take(line);
    },
    lastId: () => last_id,
  };
}

/** Opens a feed and parses what comes. */
export async function follow(url: string, headers: Record<string, string> = {}) {
  const aborting = new AbortController();
  const response = await fetch(url, { headers, signal: aborting.signal });
  const messages: Message[] = [];
  let text = '';
  let isEnded = false;
  let wake: () => void = () => undefined;
  const parser = createParser((message) => messages.push(message));
  const reading = (async () => {
    const decoder = new TextDecoder();
    for await (const chunk of response.body ?? []) {
      const piece = decoder.decode(chunk, { stream: true });
      text += piece;
      parser.push(piece);
      wake();
    }
  })();
  const settled = reading
    .catch(() => undefined)
    .finally(() => {
      isEnded = true;
      wake();
    });
  async function until(isThere: () => boolean, wanted: string): Promise<void> {
    while (!isThere()) {
      if (isEnded) throw new Error(`the feed ended before ${wanted}; it sent ${text.slice(-500)}`);
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  }
  return {
    status: response.status,
    headers: response.headers,
    /** Everything received. */
    text: () => text,
    messages,
    /** The id that a browser would send when it connects again. */
    lastId: parser.lastId,
    /** Resolves when so many messages have come; with an error if the feed ends before. */
    async received(count: number): Promise<Message[]> {
      await until(() => messages.length >= count, `${count} messages, of which ${messages.length} came`);
      return messages;
    },
    /** Resolves when this text has come. */
    contains: (wanted: string) => until(() => text.includes(wanted), wanted),
    /** Resolves when the server has ended the feed. */
    ended: reading,
    async close(): Promise<void> {
      aborting.abort();
      await settled;
    },
  };
}
