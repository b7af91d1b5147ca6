// Package weight computes how much memory a decoder will take, before it decodes.
//
//	text or bytes + the Go type to decode into --> JSON, Protobuf --> bytes of memory, or ErrTooHeavy
//	PEM text                               --> PEM            --> bytes of memory, or ErrTooHeavy
//	a decoded object                           --> Of             --> bytes of memory
//
// A bound on the length of an input does not bound what it becomes: two bytes of
// protobuf, or the five of "null,", are a container of a kilobyte in a list of
// containers. So each decoder of foreign input bounds the weight as well. The walk
// allocates nothing that grows with the input, stops as soon as the bound is passed, and
// never recurses deeper than a fixed depth.
//
// A weight is an upper estimate: it counts the growth of slices, and the entries of
// maps at the price of a map with one entry.
package weight
