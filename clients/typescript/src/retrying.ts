/** Carrying out a request, repeated with growing pauses where that is harmless and may help. */

import { Unreachable } from "./errors.js";

export interface Retrying {
  /** How often a request is tried, the first time included. */
  triesMax: number;
  firstPauseMs: number;
  /** Also the most that is waited because a Retry-After says so. */
  longestPauseMs: number;
}

export const USUAL: Retrying = { triesMax: 5, firstPauseMs: 250, longestPauseMs: 30_000 };

/** Refusals that say nothing about the request itself. */
const PASSING = new Set([429, 502, 503, 504]);

/** Asks until the answer is not a passing failure, or there are no tries left. */
export async function repeated(attempt: () => Promise<Response>, retrying: Retrying): Promise<Response> {
  for (let number = 1; ; number++) {
    const last = number >= retrying.triesMax;
    try {
      const response = await attempt();
      if (last || !PASSING.has(response.status)) return response;
      await response.body?.cancel();
      await pause(pauseMs(retrying, number, retryAfterMs(response)));
    } catch (error) {
      if (last || !(error instanceof Unreachable)) throw error;
      await pause(pauseMs(retrying, number, 0));
    }
  }
}

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Doubled each time, and drawn from the upper half, so that many clients do not come back at once. */
function pauseMs(retrying: Retrying, number: number, askedFor: number): number {
  const own = retrying.firstPauseMs * 2 ** (number - 1) * (0.5 + Math.random() / 2);
  return Math.min(Math.max(own, askedFor), retrying.longestPauseMs);
}

function retryAfterMs(response: Response): number {
  const given = response.headers.get("retry-after") ?? "";
  return /^\d+$/.test(given) ? Number(given) * 1000 : 0;
}
