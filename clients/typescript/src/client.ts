/** The client: every route by its method and path, and a few verbs that take more than one request. */

import { ApiError, DeliveryFailed, errorFor, TimedOut, Unreachable } from "./errors.js";
import { pause, repeated, type Retrying, USUAL } from "./retrying.js";
import type { Arguments, Item, Method, Operation, Result, Route, Schemas } from "./types.js";

export interface Options {
  /** Where Doorstep is, `http://127.0.0.1:8080`. */
  url: string;
  key: string;
  /** The most that one try may take, all in all. */
  timeoutMs?: number;
  retrying?: Partial<Retrying>;
  fetch?: typeof fetch;
}

export type NewEvent = Schemas["EventIn"];
export type Receipt = Schemas["Receipt"];
export type EventStatus = Schemas["EventStatus"];

interface Sent {
  path?: Record<string, unknown>;
  query?: Record<string, unknown>;
  body?: unknown;
}

/** The lists: routes that are read page by page. */
type ListRoute = {
  [P in Route<"get">]: Result<Operation<"get", P>> extends { pagination: unknown } ? P : never;
}[Route<"get">];

export class Doorstep {
  readonly #url: string;
  readonly #key: string;
  readonly #timeoutMs: number;
  readonly #retrying: Retrying;
  readonly #fetch: typeof fetch;

  constructor(options: Options) {
    this.#url = new URL(options.url).href.replace(/\/+$/, ""); // throws here, where a request would be repeated in vain
    this.#key = options.key;
    this.#timeoutMs = options.timeoutMs ?? 10_000;
    this.#retrying = { ...USUAL, ...options.retrying };
    this.#fetch = options.fetch ?? fetch;
  }

  /** Read something. Repeated by itself after passing failures. */
  get<P extends Route<"get">>(route: P, ...input: Arguments<Operation<"get", P>>): Promise<Result<Operation<"get", P>>> {
    return this.#request("get", route, input[0], true);
  }

  /** Have something done. Never repeated by itself. */
  post<P extends Route<"post">>(
    route: P,
    ...input: Arguments<Operation<"post", P>>
  ): Promise<Result<Operation<"post", P>>> {
    return this.#request("post", route, input[0], false);
  }

  /** Change some fields; `null` resets one to its default. Never repeated by itself. */
  patch<P extends Route<"patch">>(
    route: P,
    ...input: Arguments<Operation<"patch", P>>
  ): Promise<Result<Operation<"patch", P>>> {
    return this.#request("patch", route, input[0], false);
  }

  /** Delete something. Never repeated by itself. */
  delete<P extends Route<"delete">>(
    route: P,
    ...input: Arguments<Operation<"delete", P>>
  ): Promise<Result<Operation<"delete", P>>> {
    return this.#request("delete", route, input[0], false);
  }

  /** Everything in a list, fetched page by page as it is needed. */
  async *each<P extends ListRoute>(
    route: P,
    ...input: Arguments<Operation<"get", P>>
  ): AsyncGenerator<Item<Result<Operation<"get", P>>>> {
    let cursor: string | null | undefined;
    do {
      const given = input[0] as Sent | undefined;
      const query = { ...given?.query, ...(cursor ? { cursor } : {}) };
      const page: any = await this.#request("get", route, { ...given, query }, true);
      yield* Object.values(page).find(Array.isArray) ?? [];
      cursor = page.pagination.has_more ? page.pagination.cursor : undefined;
    } while (cursor);
  }

  /**
   * Send an event; once this resolves, it is on stable storage. Repeated after passing failures: without an
   * idempotency key of yours it gets one, so that it is stored once.
   */
  send(event: NewEvent): Promise<Receipt> {
    return this.#request("post", "/v1/events", { body: withKey(event) }, true);
  }

  /** Send up to 1,000 events in one transaction. */
  async sendMany(events: readonly NewEvent[]): Promise<Receipt[]> {
    const body = { events: events.map(withKey) };
    const answer: { events: Receipt[] } = await this.#request("post", "/v1/events/batch", { body }, true);
    return answer.events;
  }

  /** Wait until an event is delivered everywhere. Throws DeliveryFailed or TimedOut otherwise. */
  async waitForDelivery(eventId: string, timeoutMs = 30_000): Promise<EventStatus> {
    const deadline = performance.now() + timeoutMs;
    for (let pauseMs = 50; ; pauseMs = Math.min(pauseMs * 1.5, 2_000)) {
      const seen = await this.get("/v1/events/{event_id}/status", { path: { event_id: eventId } });
      if (seen.status === "delivered") return seen;
      if (seen.status === "failed") throw new DeliveryFailed(`event ${eventId} has failed`, seen);
      const left = deadline - performance.now();
      if (left <= 0) throw new TimedOut(`event ${eventId} was not delivered within ${timeoutMs} ms`, seen);
      await pause(Math.min(pauseMs, left));
    }
  }

  async #request(method: Method, route: string, input: unknown, repeatable: boolean): Promise<any> {
    const attempt = () => this.#attempt(method, route, (input ?? {}) as Sent);
    const response = repeatable ? await repeated(attempt, this.#retrying) : await attempt();
    if (!response.ok) throw await errorFor(response);
    return response.status === 204 ? undefined : read(response);
  }

  async #attempt(method: Method, route: string, input: Sent): Promise<Response> {
    const sent: RequestInit = {
      method: method.toUpperCase(),
      headers: { "x-api-key": this.#key, ...(method === "get" ? {} : { "content-type": "application/json" }) },
      signal: AbortSignal.timeout(this.#timeoutMs),
      redirect: "manual",
    };
    if (input.body !== undefined) sent.body = JSON.stringify(input.body);
    try {
      return await this.#fetch(this.#url + filled(route, input.path) + queried(input.query), sent);
    } catch (error) {
      throw new Unreachable(`${sent.method} ${route}: ${reason(error)}`, { cause: error });
    }
  }
}

function withKey(event: NewEvent): NewEvent {
  return { ...event, idempotency_key: event.idempotency_key ?? crypto.randomUUID() };
}

/** The ids in the places of the braces. Whatever stands in an id cannot lead to another path. */
function filled(route: string, path: Record<string, unknown> = {}): string {
  return route.replace(/\{(\w+)\}/g, (_, name: string) =>
    encodeURIComponent(String(path[name])).replaceAll(".", "%2E"),
  );
}

function queried(query: Record<string, unknown> = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  const pairs = given.flatMap(([name, value]) =>
    typeof value === "object" // payload[order.id]=42
      ? Object.entries(value as object).map(([key, each]) => [`${name}[${key}]`, String(each)])
      : [[name, String(value)]],
  );
  return pairs.length === 0 ? "" : `?${new URLSearchParams(pairs)}`;
}

async function read(response: Response): Promise<unknown> {
  const json = response.headers.get("content-type")?.includes("json") ?? false;
  if (!json) throw new ApiError(response.status, "", "The answer is not JSON", "is the URL right?", [], undefined);
  return JSON.parse(await textOf(response));
}

/** The body comes after the answer has begun: the connection can still break, and the time run out. */
async function textOf(response: Response): Promise<string> {
  try {
    return await response.text();
  } catch (error) {
    throw new Unreachable(`the answer broke off: ${reason(error)}`, { cause: error });
  }
}

/** Node hides why a connection failed in the cause of the error. */
function reason(error: unknown): string {
  const cause = error instanceof Error ? (error.cause ?? error) : error;
  return cause instanceof Error ? cause.message || cause.name : String(cause);
}
