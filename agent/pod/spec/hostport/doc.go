// Package hostport finds host ports of pods at which a program of the host already
// listens: what comes to such a port goes to one of the two only, and nobody is
// asked which.
//
//	pod's hostPorts --+
//	                  +--> Taken --> an event of the pod (Hook), a finding of islet doctor
//	/proc/net/{tcp,tcp6,udp,udp6} --> Listening
//
// The sockets are read when the sandbox or a container of a pod with host ports is
// run, and never for others.
// https://kubernetes.io/docs/concepts/services-networking/connect-applications-service/
package hostport
