// Package codec is a gRPC codec for untrusted peers.
//
//	message of a peer --> inputweight.Protobuf --> gRPC's own codec
//	                            |
//	                            '--> inputweight.ErrTooHeavy
//
// When a message is decoded, two of its bytes can become a device, a volume or a port that takes a
// hundred bytes of memory. So a limit on the length of messages does not limit their decoded size.
//
//	connection --> Client: does a large message have a share of the memory for all peers? --> gRPC
//	                 |
//	                 '--> no: it waits. A peer that sends a large message slowly loses its connection,
//	                      sooner while other messages wait. Its next message waits behind the messages of other peers
//	client --> parseSent: a reset of a stream, as for a cancelled call, frees the share of its message
package codec
