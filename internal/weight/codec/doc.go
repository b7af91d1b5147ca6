// Package codec is gRPC's codec for peers that are not trusted.
//
//	message of a peer --> weight.Protobuf --> gRPC's own codec
//	                            |
//	                            '--> weight.ErrTooHeavy
//
// Two bytes of a message can be a device, a volume or a port of a hundred bytes. A bound on the
// length of messages does not bound what they become.
//
//	connection --> Client: has a large message its share of what all peers may send? --> gRPC
//	                 |
//	                 '--> waits; who is slow with a large message loses the connection,
//	                      sooner while others wait, and waits behind them the next time
package codec
