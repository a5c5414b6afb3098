// Anthropic's official JavaScript client: messages, streams and their helpers, tools, thinking.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { MODEL, URL, check, main } from "./checks.mjs";

const client = new Anthropic({ baseURL: URL, apiKey: "none", maxRetries: 0, timeout: 60000 });
const messages = [{ role: "user", content: "What is a dog?" }];
const weather = {
  name: "get_weather",
  description: "Get the weather at a location.",
  input_schema: {
    type: "object", properties: { location: { type: "string" } }, required: ["location"],
  },
};
const ask = (more) => ({ model: MODEL, max_tokens: 40, messages, ...more });

check("message answers with usage", async () => {
  const answer = await client.messages.create(ask({ system: "Be kind." }));
  assert.ok(answer.content[0].text);
  assert.ok(["end_turn", "max_tokens"].includes(answer.stop_reason));
  assert.ok(answer.usage.output_tokens > 0);
  assert.equal(typeof answer.usage.cache_creation_input_tokens, "number");
});
check("request id is told", async () => {
  const { request_id, response } = await client.messages.create(ask()).withResponse();
  assert.ok(request_id);
  assert.equal(request_id, response.headers.get("x-request-id"));
});
check("stream helpers join to the final message", async () => {
  const stream = client.messages.stream(ask());
  const kinds = [];
  let text = "";
  stream.on("text", (delta) => { text += delta; });
  stream.on("streamEvent", (event) => kinds.push(event.type));
  const final = await stream.finalMessage();
  assert.equal(final.content[0].text, text);
  assert.equal(await stream.finalText(), text);
  assert.equal(kinds[0], "message_start");
  assert.equal(kinds.at(-1), "message_stop");
  assert.ok(final.usage.input_tokens + final.usage.cache_read_input_tokens > 5);
});
check("raw stream is iterated", async () => {
  const stream = await client.messages.create(ask({ stream: true }));
  const kinds = [];
  for await (const event of stream) kinds.push(event.type);
  assert.ok(kinds.includes("content_block_delta"), kinds.join());
});
check("stop sequence is told", async () => {
  const whole = await client.messages.create(ask({ temperature: 0 }));
  const word = whole.content[0].text.trim().split(" ")[2];
  const answer = await client.messages.create(ask({ temperature: 0, stop_sequences: [word] }));
  assert.equal(answer.stop_reason, "stop_sequence");
  assert.equal(answer.stop_sequence, word);
});
check("tool is used and its result is answered", async () => {
  const first = [{ role: "user", content: "What is the weather in Boston, MA?" }];
  const answer = await client.messages.create(ask({
    messages: first, max_tokens: 200, tools: [weather], tool_choice: { type: "any" },
  }));
  assert.equal(answer.stop_reason, "tool_use");
  const use = answer.content.find((block) => block.type === "tool_use");
  assert.deepEqual(Object.keys(use.input), ["location"]);
  const result = { type: "tool_result", tool_use_id: use.id, content: "sunny" };
  const second = await client.messages.create(ask({
    tools: [weather],
    messages: [
      ...first, { role: "assistant", content: answer.content },
      { role: "user", content: [result] },
    ],
  }));
  assert.ok(second.content.length);
});
check("tool use streams its input", async () => {
  const stream = client.messages.stream(ask({
    max_tokens: 200, tools: [weather], tool_choice: { type: "tool", name: "get_weather" },
  }));
  let json = "";
  stream.on("inputJson", (delta) => { json += delta; });
  const final = await stream.finalMessage();
  assert.deepEqual(JSON.parse(json), final.content.at(-1).input);
});
check("thinking fields and server tools are taken", async () => {
  const { data, response } = await client.messages.create(ask({
    thinking: { type: "enabled", budget_tokens: 1024 }, max_tokens: 40,
    tools: [weather, { type: "web_search_20250305", name: "web_search" }],
    metadata: { user_id: "u" },
  })).withResponse();
  assert.ok(data.content.length);
  assert.match(response.headers.get("warning"), /web_search_20250305/);
});
check("thinking of an earlier turn is taken", async () => {
  const answer = await client.messages.create(ask({ messages: [
    ...messages,
    { role: "assistant", content: [
      { type: "thinking", thinking: "Hm.", signature: "" }, { type: "text", text: "A pet." },
    ] },
    { role: "user", content: "And a cat?" },
  ] }));
  assert.ok(answer.content[0].text);
});
check("context is edited", async () => {
  const answer = await client.beta.messages.create(ask({
    betas: ["context-management-2025-06-27"],
    context_management: { edits: [
      { type: "clear_tool_uses_20250919", trigger: { type: "tool_uses", value: 1 },
        keep: { type: "tool_uses", value: 1 } },
    ] },
    messages: [
      ...messages,
      ...[1, 2, 3].flatMap((n) => [
        { role: "assistant",
          content: [{ type: "tool_use", id: `t${n}`, name: "get_weather", input: {} }] },
        { role: "user", content: [
          { type: "tool_result", tool_use_id: `t${n}`, content: "sunny all day, and warm " } ] },
      ]),
    ],
    tools: [weather],
  }));
  const [edit] = answer.context_management.applied_edits;
  assert.equal(edit.cleared_tool_uses, 2);
});
check("tokens are counted", async () => {
  const { input_tokens } = await client.messages.countTokens({ model: MODEL, messages });
  assert.ok(input_tokens > 3);
});
check("models are listed", async () => {
  const names = [];
  for await (const model of client.models.list()) names.push(model.id);
  assert.ok(names.includes(MODEL));
  const model = await client.models.retrieve(MODEL);
  assert.ok(!Number.isNaN(Date.parse(model.created_at)));
  assert.equal(model.display_name, MODEL);
});
check("aborting a stream leaves the server well", async () => {
  const stream = client.messages.stream(ask({ max_tokens: 200 }));
  await new Promise((resolve) => stream.once("text", resolve));
  stream.abort();
  await assert.rejects(stream.finalMessage(), Anthropic.APIUserAbortError);
  assert.ok((await client.messages.create(ask())).id);
});
check("errors have their types", async () => {
  await assert.rejects(
    client.messages.create(ask({ model: "nobody" })), Anthropic.NotFoundError);
  await assert.rejects(client.messages.create(ask({ messages: [] })), (error) =>
    error instanceof Anthropic.BadRequestError && Boolean(error.requestID)
    && error.type === "invalid_request_error");
});

await main();
