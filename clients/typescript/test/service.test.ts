/** Against a running Doorstep, whose place and key the environment gives. */

import assert from "node:assert/strict";
import { env } from "node:process";
import { test } from "node:test";

import { Webhook } from "standardwebhooks";

import { ApiError, Doorstep } from "../src/index.js";
import { serve } from "./server.js";

const { DOORSTEP_URL: url, DOORSTEP_API_KEY: key } = env;
const skip = url && key ? false : "DOORSTEP_URL and DOORSTEP_API_KEY say where a running Doorstep is";
const doorstep = new Doorstep({ url: url ?? "http://127.0.0.1:1", key: key ?? "" });
const unique = () => `order.${crypto.randomUUID()}`;

test("an event is sent, delivered, and verified by a library that is not ours", { skip }, async () => {
  const receiver = await serve((_, response) => response.writeHead(200).end());
  const event_type = unique();
  try {
    const endpoint = await doorstep.post("/v1/endpoints", {
      body: { name: event_type, url: receiver.url, event_types: [event_type] },
    });
    const receipt = await doorstep.send({ event_type, payload: { order: 42 } });
    assert.equal(receipt.deliveries, 1);
    assert.equal((await doorstep.waitForDelivery(receipt.event_id)).status, "delivered");
    const [taken] = receiver.taken;
    assert.deepEqual(new Webhook(endpoint.secret!).verify(taken!.body, taken!.headers), { order: 42 });
    assert.equal(taken!.headers["webhook-id"], receipt.event_id);
    assert.throws(() => new Webhook(endpoint.secret!).verify(`${taken!.body} `, taken!.headers));
    await doorstep.delete("/v1/endpoints/{endpoint_id}", { path: { endpoint_id: endpoint.endpoint_id } });
  } finally {
    await receiver.close();
  }
});

test("the same idempotency key stores one event", { skip }, async () => {
  const event = { event_type: unique(), payload: 1, idempotency_key: crypto.randomUUID() };
  const [first, second] = [await doorstep.send(event), await doorstep.send(event)];
  assert.equal(first.event_id, second.event_id);
});

test("a list is gone through page by page", { skip }, async () => {
  const event_type = unique();
  const receipts = await doorstep.sendMany([1, 2, 3, 4, 5].map((payload) => ({ event_type, payload })));
  const seen = new Set<string>();
  for await (const event of doorstep.each("/v1/events", { query: { event_type, limit: 2 } })) seen.add(event.event_id);
  assert.deepEqual(seen, new Set(receipts.map((receipt) => receipt.event_id)));
});

test("what does not exist is told as such", { skip }, async () => {
  const path = { event_id: crypto.randomUUID() };
  await assert.rejects(doorstep.get("/v1/events/{event_id}", { path }), (error) => {
    assert.ok(error instanceof ApiError);
    assert.deepEqual([error.status, error.code], [404, "not_found"]);
    return true;
  });
});
