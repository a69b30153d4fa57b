/** What a request to a route takes and gives, read off the API's own description. */

import type { components, paths } from "./schema.js";

export type Schemas = components["schemas"];
export type Method = "get" | "post" | "patch" | "delete";

/** The routes that know a method. */
export type Route<M extends Method> = {
  [P in keyof paths]: paths[P] extends Record<M, { responses: unknown }> ? P : never;
}[keyof paths];

export type Operation<M extends Method, P extends Route<M>> = paths[P] extends Record<M, infer O> ? O : never;

/** The answer's body; `undefined` where there is none. */
export type Result<O> = O extends { responses: infer R }
  ? { [S in keyof R & (200 | 201 | 202 | 207)]: Content<R[S]> }[keyof R & (200 | 201 | 202 | 207)] extends infer C
    ? [C] extends [never]
      ? undefined
      : C
    : never
  : never;

type Content<R> = R extends { content: { "application/json": infer B } } ? B : never;
type Parameters<O, K extends string> = O extends { parameters: { [k in K]: infer V } } ? V : never;
type OptionalParameters<O, K extends string> = O extends { parameters: { [k in K]?: infer V } } ? V : never;
type Body<O> = O extends { requestBody: { content: { "application/json": infer B } } } ? { body: B } : OptionalBody<O>;
type OptionalBody<O> = O extends { requestBody?: infer R }
  ? NonNullable<R> extends { content: { "application/json": infer B } }
    ? { body?: B }
    : { body?: never }
  : { body?: never };
type Path<O> = [Parameters<O, "path">] extends [never] ? { path?: never } : { path: Parameters<O, "path"> };
type Query<O> = [OptionalParameters<O, "query">] extends [never]
  ? { query?: never }
  : { query?: NonNullable<OptionalParameters<O, "query">> };

/** What a route is given: the ids in its path, its query, its body. */
export type Input<O> = Path<O> & Query<O> & Body<O>;

/** The input may be left out where nothing in it is required. */
export type Arguments<O> = {} extends Input<O> ? [input?: Input<O>] : [input: Input<O>];

/** The things that a list is made of. */
export type Item<L> = {
  [K in keyof L]: NonNullable<L[K]> extends readonly (infer I)[] ? I : never;
}[keyof L];
