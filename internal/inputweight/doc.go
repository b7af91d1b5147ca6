// Package inputweight estimates the memory that a decoded input takes, before the input is decoded.
//
//	text or bytes + the Go type to decode into --> JSON, Protobuf --> bytes of memory, or ErrTooHeavy
//	PEM text                               --> PEM            --> bytes of memory, or ErrTooHeavy
//	a decoded object                       --> SizeOf         --> bytes of memory
//
// A limit on the length of an input does not limit its decoded size. In a list of containers, two bytes of protobuf,
// or the five bytes "null,", become a container of a kilobyte. So every decoder of untrusted input also limits the
// weight. The computation needs no memory in proportion to the input, stops at the limit, and has a limited recursion
// depth.
//
// A weight is an upper bound of the memory. It includes the unused capacity of grown slices, and assumes that maps are
// half empty.
//
// The package below it:
//
//	codec  a gRPC codec for untrusted peers
package inputweight
