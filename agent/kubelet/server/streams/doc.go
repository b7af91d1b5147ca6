// Package streams serves exec, attach and port-forward with the protocols of a kubelet.
//
//	/exec, /attach --WebSocket--> channels --+
//	               --SPDY-------> spdy ------+--> process --> cri.Streamer
//	/portForward   --WebSocket--> library ---+
//	               --SPDY, tunnel-> spdy ----+--> ports ----> cri.Streamer
//
//	any of them, if the runtime is not a cri.Streamer --> proxy --> URL of the runtime
//
// A session ends when its client disconnects, when nothing was transferred for the idle timeout, or when the agent stops. In the last two
// cases the client gets the reason. The node lets the client close the connection first, so that the client gets every byte and the exit
// code, however slowly it reads.
package streams
