// Package plugins finds the plugins that run beside the agent, such as CSI drivers, DRA
// drivers and device plugins, and hands each to the part of the agent that uses its type.
// A plugin makes a socket below <root-dir>/plugins_registry; the agent calls it there.
//
//	socket appears --GetInfo--> type --> Handler.Validate --> Register --NotifyRegistrationStatus--> plugin
//	  '--again, at the same path: Deregister, then as above
//	socket vanishes --------------------> Handler.Deregister
//
// All of it waits for the events of one inotify instance: an idle directory costs two
// goroutines. Each socket has a goroutine of its own only while it is being registered, so
// one that hangs or lies holds up no other; it is tried again with a back-off for as long
// as it is there, and one that is made anew all the time waits in between. After a restart of the agent every socket that is there is new.
//
// What a plugin says is a claim: it is bounded in time, size and form here; what the name
// and versions of a type must be is for its Handler.
// https://kubernetes.io/docs/reference/node/device-plugin-api-versions/
// https://pkg.go.dev/k8s.io/kubelet/pkg/apis/pluginregistration/v1
package plugins
