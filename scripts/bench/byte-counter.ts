import { get } from 'node:http';

// Reads one answer, and prints its status, bytes and milliseconds: a client that costs the measured service nothing.

const [url = '', headers = '{}'] = process.argv.slice(2);
const startedAt = performance.now();
get(url, { headers: JSON.parse(headers) }, (response) => {
  let bytes = 0;
  response.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
  });
  response.on('end', () => {
    console.log(JSON.stringify({ status: response.statusCode, bytes, ms: performance.now() - startedAt }));
  });
});
