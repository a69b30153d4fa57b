/** What the client throws. */

export interface FieldProblem {
  field: string;
  message: string;
}

/** Doorstep said no, and why. */
export class ApiError extends Error {
  override readonly name = "ApiError";

  constructor(
    readonly status: number,
    /** The stable name of the problem: `not_found`, `conflict`, `invalid_input`. */
    readonly code: string,
    readonly title: string,
    readonly detail: string,
    /** What is wrong with which field of the request. */
    readonly errors: readonly FieldProblem[],
    /** Look for it in Doorstep's log. */
    readonly correlationId: string | undefined,
  ) {
    super(detail ? `${status} ${title}: ${detail}` : `${status} ${title}`);
  }
}

/** No answer came. A request that changes something may have been carried out all the same. */
export class Unreachable extends Error {
  override readonly name = "Unreachable";
}

/** What was waited for did not come; `seen` is what was seen last. */
export class WaitEnded<T> extends Error {
  override readonly name: string = "WaitEnded";

  constructor(
    message: string,
    readonly seen: T,
  ) {
    super(message);
  }
}

/** It did not come within the time given; it may come yet. */
export class TimedOut<T> extends WaitEnded<T> {
  override readonly name = "TimedOut";
}

/** Nothing is left to try, and at least one delivery is dead. */
export class DeliveryFailed<T> extends WaitEnded<T> {
  override readonly name = "DeliveryFailed";
}

/** The error that an answer of 400 or more stands for, whoever wrote it. */
export async function errorFor(response: Response): Promise<ApiError> {
  const problem = await readProblem(response);
  return new ApiError(
    response.status,
    String(problem["type"] ?? "").split(":").at(-1) ?? "",
    String(problem["title"] ?? "An answer without a reason"),
    String(problem["detail"] ?? ""),
    Array.isArray(problem["errors"]) ? (problem["errors"] as FieldProblem[]) : [],
    response.headers.get("x-correlation-id") ?? undefined,
  );
}

async function readProblem(response: Response): Promise<Record<string, unknown>> {
  try {
    const parsed: unknown = await response.json();
    return typeof parsed === "object" && parsed !== null ? (parsed as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}
