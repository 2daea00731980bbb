// Package summa translates between the Summa wire (api/summa) and weft's engine. It is what a node that speaks Summa and a broker for
// Summa nodes share: limits of requests with their refusals, names of indexes, documents, schemas.
//
// # Contract
//
// Every function depends on its arguments alone: no index is looked up, nothing waits, nothing is kept. What a client sees is an *Error
// with a gRPC code and the text that the reference gives; docs say where weft differs on purpose. Checks cost a walk of the request and
// allocate nothing that grows with it, so a request past a limit costs no more than reading it.
//
// Converters and Limits are immutable and safe for concurrent use.
package summa
