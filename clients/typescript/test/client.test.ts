/** What the client repeats, what it never repeats, and what it throws. */

import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

import { ApiError, DeliveryFailed, Doorstep, TimedOut, Unreachable } from "../src/index.js";
import { json, serve, type Server } from "./server.js";

const RECEIPT = { event_id: "e", status: "received", created_at: "2026-01-31T12:00:00Z", deliveries: 1, verdict: "accepted" };
const PROBLEM = {
  type: "urn:doorstep:problem:invalid_input",
  title: "A title",
  status: 422,
  detail: "a detail",
  errors: [{ field: "name", message: "is missing" }],
};
const EVENT = { event_type: "order.paid", payload: { order: 1 } };
const servers: Server[] = [];

afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()));
});

async function answering(answer: Parameters<typeof serve>[0]): Promise<[Doorstep, Server]> {
  const server = await serve(answer);
  servers.push(server);
  return [client(server.url), server];
}

function client(url: string, timeoutMs = 10_000): Doorstep {
  return new Doorstep({ url, key: "k", timeoutMs, retrying: { triesMax: 3, firstPauseMs: 1, longestPauseMs: 5 } });
}

const status = (name: string) => ({ event_id: "e", status: name, retry_attempts: 0 });

test("a send is repeated after passing failures, with the same idempotency key", async () => {
  const [doorstep, server] = await answering((_, response, number) =>
    number < 3 ? json(response, 503, PROBLEM, { "retry-after": "86400" }) : json(response, 202, RECEIPT),
  );
  assert.equal((await doorstep.send(EVENT)).event_id, "e");
  const [first, ...others] = server.taken.map((taken) => taken.body);
  assert.equal(others.length, 2);
  assert.match(JSON.parse(first!).idempotency_key, /^[0-9a-f-]{36}$/);
  assert.deepEqual(new Set(others), new Set([first]));
});

test("every event of a batch has a key of its own", async () => {
  const [doorstep, server] = await answering((_, response) => json(response, 202, { events: [RECEIPT, RECEIPT] }));
  assert.equal((await doorstep.sendMany([EVENT, EVENT])).length, 2);
  const keys = JSON.parse(server.taken[0]!.body).events.map((event: { idempotency_key: string }) => event.idempotency_key);
  assert.equal(new Set(keys).size, 2);
});

test("a question is asked again when the connection breaks", async () => {
  const [doorstep, server] = await answering((_, response, number) =>
    number < 3 ? response.destroy() : json(response, 200, { status: "ok" }),
  );
  await doorstep.get("/healthz");
  assert.equal(server.taken.length, 3);
});

test("what may not be done twice is sent once", async () => {
  const [doorstep, server] = await answering((_, response) => json(response, 503, PROBLEM));
  const path = { endpoint_id: "x" };
  await assert.rejects(doorstep.post("/v1/endpoints/{endpoint_id}/pause", { path, body: {} }), ApiError);
  await assert.rejects(doorstep.patch("/v1/endpoints/{endpoint_id}", { path, body: {} }), ApiError);
  await assert.rejects(doorstep.delete("/v1/endpoints/{endpoint_id}", { path }), ApiError);
  assert.deepEqual(server.taken.map((taken) => taken.method), ["POST", "PATCH", "DELETE"]);
});

test("a refusal is thrown with the fields of the problem, and is final", async () => {
  const [doorstep, server] = await answering((_, response) => json(response, 422, PROBLEM, { "x-correlation-id": "c" }));
  await assert.rejects(doorstep.send(EVENT), (error) => {
    assert.ok(error instanceof ApiError);
    assert.equal(error.message, "422 A title: a detail");
    assert.deepEqual([error.status, error.code, error.correlationId], [422, "invalid_input", "c"]);
    assert.deepEqual(error.errors, PROBLEM.errors);
    return true;
  });
  assert.equal(server.taken.length, 1);
});

test("a refusal that is not Doorstep's is told by its status", async () => {
  const [doorstep] = await answering((_, response) => response.writeHead(502).end("<html>"));
  await assert.rejects(doorstep.get("/healthz"), /^ApiError: 502 /);
});

test("nobody there, or nobody answering in time, is Unreachable", async () => {
  await assert.rejects(client("http://127.0.0.1:1").get("/healthz"), Unreachable);
  const [, server] = await answering(() => undefined);
  await assert.rejects(client(server.url, 500).get("/healthz"), Unreachable);
  assert.equal(server.taken.length, 3);
});

test("an answer that breaks off is Unreachable too", async () => {
  const [doorstep] = await answering((_, response) => {
    response.writeHead(200, { "content-type": "application/json", "content-length": "100" }).write("{");
    setTimeout(() => response.destroy(), 20);
  });
  await assert.rejects(doorstep.get("/healthz"), /^Unreachable: the answer broke off/);
});

test("a URL that is none is refused at once", () => {
  assert.throws(() => client("127.0.0.1"), TypeError);
});

test("an id cannot lead to another path", async () => {
  const [doorstep, server] = await answering((_, response) => json(response, 200, status("delivered")));
  await doorstep.get("/v1/events/{event_id}/status", { path: { event_id: "../../keys?x" } });
  assert.equal(server.taken[0]!.url, "/v1/events/%2E%2E%2F%2E%2E%2Fkeys%3Fx/status");
});

test("waiting ends when the event is delivered, has failed, or the time is over", async () => {
  const [soon] = await answering((_, response, number) => json(response, 200, status(number < 3 ? "queued" : "delivered")));
  assert.equal((await soon.waitForDelivery("e")).status, "delivered");
  const [failing] = await answering((_, response) => json(response, 200, status("failed")));
  await assert.rejects(failing.waitForDelivery("e"), DeliveryFailed);
  const [never] = await answering((_, response) => json(response, 200, status("queued")));
  await assert.rejects(never.waitForDelivery("e", 120), (error) => {
    assert.ok(error instanceof TimedOut);
    assert.equal(error.seen.status, "queued");
    return true;
  });
});

test("a list is followed to its end", async () => {
  const [doorstep, server] = await answering((taken, response) => {
    const last = taken.url.includes("cursor=two");
    const pagination = { limit: 1, cursor: last ? null : "two", has_more: !last };
    json(response, 200, { endpoints: [{ name: last ? "b" : "a" }], pagination });
  });
  const names: string[] = [];
  for await (const endpoint of doorstep.each("/v1/endpoints", { query: { limit: 1 } })) names.push(endpoint.name);
  assert.deepEqual(names, ["a", "b"]);
  assert.equal(server.taken[1]!.url, "/v1/endpoints?limit=1&cursor=two");
});

test("the compiler refuses what the API does not know", () => {
  const misuse = (doorstep: Doorstep) => {
    // @ts-expect-error there is no such route
    void doorstep.get("/v1/nowhere");
    // @ts-expect-error the route has no such method
    void doorstep.delete("/v1/inbox");
    // @ts-expect-error the id in the path is missing
    void doorstep.get("/v1/events/{event_id}/status");
    // @ts-expect-error an event needs a type
    void doorstep.send({ payload: 1 });
    // @ts-expect-error no list has this in its query
    void doorstep.each("/v1/endpoints", { query: { colour: "red" } });
    // @ts-expect-error this is not a list
    void doorstep.each("/healthz");
    // @ts-expect-error a status has no such field
    void doorstep.waitForDelivery("e").then((seen) => seen.payload);
  };
  assert.equal(typeof misuse, "function");
});
