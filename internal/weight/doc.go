// Package weight estimates the memory that an input will take when it is decoded.
//
//	text or bytes + the Go type to decode into --> JSON, Protobuf --> bytes of memory, or ErrTooHeavy
//	PEM text                               --> PEM            --> bytes of memory, or ErrTooHeavy
//	a decoded object                           --> Of             --> bytes of memory
//
// A bound on the length of an input does not bound its decoded size: two bytes of protobuf, or the
// five of "null,", become a container of a kilobyte in a list of containers. So every decoder of
// untrusted input has a bound on the weight as well. The walk allocates no memory in proportion to
// the input, stops when the bound is exceeded, and has a limited recursion depth.
//
// A weight is an upper estimate: it includes the growth of slices, and counts each map entry as if
// it were the only one of its map.
package weight
