// Sends a message through the default transport of the AI SDK, and prints the answer that its own
// parser builds from the stream, and how many states it went through.
import { DefaultChatTransport, readUIMessageStream } from "ai";

const [api, token, chatId, text] = process.argv.slice(2);
const transport = new DefaultChatTransport({ api, headers: { Authorization: `Bearer ${token}` } });
const message = { id: crypto.randomUUID(), role: "user", parts: [{ type: "text", text }] };
const chunks = await transport.sendMessages({
  trigger: "submit-message", chatId, messageId: undefined, messages: [message],
  abortSignal: undefined,
});
let last, states = 0;
for await (const state of readUIMessageStream({ stream: chunks, terminateOnError: true })) {
  last = state;
  states += 1;
}
process.stdout.write(JSON.stringify({ states, role: last.role, parts: last.parts }));
