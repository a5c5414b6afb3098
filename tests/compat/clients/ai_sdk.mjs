// The Vercel AI SDK: the strictest reader of chunks and tool deltas.
import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, embedMany, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { MODEL, URL, check, main } from "./checks.mjs";

const provider = createOpenAICompatible({
  name: "yaie", baseURL: `${URL}/v1`, apiKey: "none", includeUsage: true,
  supportsStructuredOutputs: true,
});
const model = provider(MODEL);
const prompt = "What is a dog?";
const weather = tool({
  description: "Get the weather at a location.",
  inputSchema: z.object({ location: z.string() }),
  execute: async () => "It's sunny.",
});
const city = z.object({
  name: z.string().max(24), inhabitants: z.number().int().min(0).max(50000000),
});

check("text is generated", async () => {
  const { text, usage } = await generateText({ model, prompt, maxOutputTokens: 24, maxRetries: 0 });
  assert.ok(text);
  assert.ok(usage.outputTokens > 0);
});
check("text streams", async () => {
  const result = streamText({ model, prompt, maxOutputTokens: 40, maxRetries: 0 });
  let text = "";
  for await (const part of result.textStream) text += part;
  assert.ok(text);
  assert.ok((await result.usage).inputTokens > 0);
});
check("tools are called and answered", async () => {
  const { steps, text } = await generateText({
    model, prompt: "What is the weather in Boston, MA?", tools: { get_weather: weather },
    stopWhen: stepCountIs(3), temperature: 0, maxRetries: 0,
  });
  assert.ok(steps.some((step) => step.toolCalls.length > 0));
  assert.ok(text);
});
check("required tool streams", async () => {
  const result = streamText({
    model, prompt, tools: { get_weather: weather }, toolChoice: "required", maxRetries: 0,
  });
  const kinds = [];
  for await (const part of result.fullStream) {
    kinds.push(part.type);
    if (part.type === "error") throw part.error;
  }
  assert.ok(kinds.includes("tool-call"), kinds.join());
});
check("an object is generated", async () => {
  const { output } = await generateText({
    model, prompt: "A city, as JSON.", output: Output.object({ schema: city }), maxRetries: 0,
  });
  city.parse(output);
});
check("embeddings", async () => {
  const { embeddings } = await embedMany({
    model: provider.embeddingModel(MODEL), values: ["a dog", "a cat"], maxRetries: 0,
  });
  assert.equal(embeddings.length, 2);
});
check("an unknown model is an error with a message", async () => {
  await assert.rejects(
    generateText({ model: provider("no-such-model"), prompt, maxRetries: 0 }),
    (error) => error.statusCode === 404 && /does not exist/.test(error.message));
});

await main();
