// Reads a durable stream with the official client, and prints each batch as a line of JSON.
import { stream } from "@durable-streams/client";

const [url, token, offset, live] = process.argv.slice(2);
const response = await stream({
  url, offset, live, json: true, warnOnHttp: false, headers: { Authorization: `Bearer ${token}` },
});
response.subscribeJson((batch) => {
  const line = { offset: batch.offset, versions: batch.items.map((each) => each.version) };
  process.stdout.write(`${JSON.stringify(line)}\n`);
});
await response.closed;
