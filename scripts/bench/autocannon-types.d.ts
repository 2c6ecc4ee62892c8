declare module 'autocannon' {
  interface Request {
    method: string;
    path: string;
    headers: Readonly<Record<string, string>>;
    body?: string;
  }

  interface Result {
    duration: number;
    errors: number;
    '2xx': number;
    non2xx: number;
  }

  interface Options {
    url: string;
    connections: number;
    duration: number;
    timeout: number;
    requests: { setupRequest: (request: Request) => Request }[];
  }

  interface Instance extends PromiseLike<Result> {
    on(
      event: 'response',
      listener: (client: unknown, status: number, bytes: number, milliseconds: number) => void,
    ): void;
  }

  function autocannon(options: Options): Instance;
  export default autocannon;
}
