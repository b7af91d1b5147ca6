// Package weight estimates the memory that an input will take when it is decoded.
//
//	text or bytes + the Go type to decode into --> JSON, Protobuf --> bytes of memory, or ErrTooHeavy
//	PEM text                               --> PEM            --> bytes of memory, or ErrTooHeavy
//	a decoded object                           --> Of             --> bytes of memory
//
// A bound on the length of an input does not bound its decoded size. In a list of containers, two bytes of protobuf,
// or the five bytes "null,", become a container of a kilobyte. So every decoder of untrusted input also has a bound on
// the weight. The walk allocates no memory in proportion to the input, stops when the bound is exceeded, and has a
// limited recursion depth.
//
// A weight is an upper bound: it includes the unused capacity of grown slices, and counts each map entry as if it were
// the only one of its map.
package weight
