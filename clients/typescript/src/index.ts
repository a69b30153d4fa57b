/** Typed client for Doorstep. */

export { Doorstep, type EventStatus, type NewEvent, type Options, type Receipt } from "./client.js";
export { ApiError, DeliveryFailed, type FieldProblem, TimedOut, Unreachable, WaitEnded } from "./errors.js";
export type { Retrying } from "./retrying.js";
export type { components, operations, paths } from "./schema.js";
export type { Schemas } from "./types.js";
