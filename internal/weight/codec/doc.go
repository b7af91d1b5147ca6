// Package codec is a gRPC codec for untrusted peers.
//
//	message of a peer --> weight.Protobuf --> gRPC's own codec
//	                            |
//	                            '--> weight.ErrTooHeavy
//
// Two bytes of a message can become a device, a volume or a port of a hundred bytes, so a bound on
// the length of messages does not bound their decoded size.
//
//	connection --> Client: has a large message its share of the memory for all peers? --> gRPC
//	                 |
//	                 '--> it waits; a peer that is slow with a large message loses its connection,
//	                      sooner while other messages wait, and waits behind others the next time
//	client --> sent: if it resets a stream, as for a cancelled call, the share of its message is freed
package codec
