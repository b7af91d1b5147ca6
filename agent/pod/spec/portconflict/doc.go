// Package portconflict finds host ports of pods that conflict with a program that listens on the host. Traffic to such a
// port reaches either the pod or the program, but not both.
//
//	pod's hostPorts --+
//	                  +--> FindConflicts --> an event of the pod (Hook), a finding of islet doctor
//	/proc/net/{tcp,tcp6,udp,udp6} --> ListSockets
//
// The sockets are read before the start of a sandbox or container, if the pod has host ports.
// https://kubernetes.io/docs/concepts/services-networking/connect-applications-service/
package portconflict
