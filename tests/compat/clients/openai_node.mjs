// The official JavaScript client: chat, streams, tools, parsed output, responses, errors.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { MODEL, URL, check, main } from "./checks.mjs";

const client = new OpenAI({ baseURL: `${URL}/v1`, apiKey: "none", maxRetries: 0, timeout: 60000 });
const messages = [{ role: "user", content: "What is a dog?" }];
const City = z.object({
  name: z.string().max(24), inhabitants: z.number().int().min(0).max(50000000),
});
const parameters = {
  type: "object", properties: { location: { type: "string" } }, required: ["location"],
};

check("models are listed", async () => {
  const names = [];
  for await (const model of client.models.list()) names.push(model.id);
  assert.ok(names.includes(MODEL));
});
check("chat answers", async () => {
  const answer = await client.chat.completions.create({ model: MODEL, messages, max_tokens: 24 });
  assert.ok(answer.choices[0].message.content);
});
check("stream joins to the whole text", async () => {
  const wish = { model: MODEL, messages, max_tokens: 40, temperature: 0 };
  const whole = (await client.chat.completions.create(wish)).choices[0].message.content;
  let text = "";
  const stream = await client.chat.completions.create({
    ...wish, stream: true, stream_options: { include_usage: true },
  });
  let usage;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole);
  assert.ok(usage.completion_tokens > 0);
});
check("tools run to an answer", async () => {
  const asked = [];
  const runner = client.chat.completions.runTools({
    model: MODEL, temperature: 0,
    messages: [{ role: "user", content: "What is the weather in Boston, MA?" }],
    tools: [{
      type: "function",
      function: {
        name: "get_weather", description: "Get the weather at a location.", parameters,
        parse: JSON.parse,
        function: ({ location }) => { asked.push(location); return "sunny"; },
      },
    }],
  }, { maxChatCompletions: 4 });
  const content = await runner.finalContent();
  assert.ok(asked.length > 0);
  assert.ok(content);
});
check("streamed tool call has its arguments", async () => {
  const stream = client.chat.completions.stream({
    model: MODEL, messages, tool_choice: "required",
    tools: [{ type: "function", function: { name: "get_weather", parameters } }],
  });
  const final = await stream.finalChatCompletion();
  const call = final.choices[0].message.tool_calls[0];
  assert.equal(call.function.name, "get_weather");
  assert.equal(typeof JSON.parse(call.function.arguments).location, "string");
});
check("parsed output has the schema's form", async () => {
  const answer = await client.chat.completions.parse({
    model: MODEL, messages: [{ role: "user", content: "A city, as JSON." }],
    response_format: zodResponseFormat(City, "city"),
  });
  City.parse(answer.choices[0].message.parsed);
});
check("responses stream", async () => {
  const stream = client.responses.stream({ model: MODEL, input: "What is a dog?", temperature: 0 });
  const kinds = [];
  for await (const event of stream) kinds.push(event.type);
  assert.equal(kinds[0], "response.created");
  assert.ok((await stream.finalResponse()).output_text);
});
check("embeddings have their size", async () => {
  const answer = await client.embeddings.create({ model: MODEL, input: ["a", "b"] });
  assert.equal(answer.data.length, 2);
  assert.ok(answer.data[0].embedding.length > 8);
});
check("errors have their types", async () => {
  await assert.rejects(
    client.chat.completions.create({ model: "no-such-model", messages }), OpenAI.NotFoundError);
  await assert.rejects(
    client.chat.completions.create({ model: MODEL, messages, temperature: 9 }),
    OpenAI.BadRequestError);
});
check("aborting a stream leaves the server well", async () => {
  const stream = await client.chat.completions.create({ model: MODEL, messages, stream: true });
  for await (const _ of stream) { stream.controller.abort(); break; }
  await client.models.list();
});

await main();
