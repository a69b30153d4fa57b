/** Small HTTP servers on this machine, for tests. */

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface Taken {
  method: string;
  url: string;
  headers: Record<string, string>;
  body: string;
}

export interface Server {
  url: string;
  taken: Taken[];
  close(): Promise<void>;
}

/** Notes every request, then has it answered. */
export async function serve(answer: (taken: Taken, response: ServerResponse, number: number) => void): Promise<Server> {
  const taken: Taken[] = [];
  const server = createServer(async (request, response) => {
    taken.push(await noted(request));
    answer(taken.at(-1)!, response, taken.length);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const close = () =>
    new Promise<void>((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, taken, close };
}

export function json(response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}): void {
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
}

async function noted(request: IncomingMessage): Promise<Taken> {
  const parts: Buffer[] = [];
  for await (const part of request) parts.push(part as Buffer);
  return {
    method: request.method ?? "",
    url: request.url ?? "",
    headers: request.headers as Record<string, string>,
    body: Buffer.concat(parts).toString(),
  };
}
