// Package plugins registers the plugins that run beside the agent, such as CSI drivers, DRA drivers and device
// plugins. It passes each plugin to the Handler of its type. A plugin creates a socket below
// <root-dir>/plugins_registry, and the agent calls it there.
//
//	socket created --GetInfo--> type --> Handler.Validate --> Register --NotifyRegistrationStatus--> plugin
//	  '--again, at the same path: Deregister, then as above
//	socket removed ---------------------> Handler.Deregister
//
// The registry waits for the events of one inotify instance with two goroutines. Each socket that is being registered
// has its own goroutine, so a plugin that hangs does not delay others. A failed registration is retried with backoff
// while the socket exists. The registration of a socket that is recreated again and again is delayed. After a restart
// of the agent every existing socket is registered again.
//
// The registry limits the duration and size of a plugin's responses, and validates their form. The Handler checks the
// name and the versions. https://kubernetes.io/docs/reference/node/device-plugin-api-versions/
// https://pkg.go.dev/k8s.io/kubelet/pkg/apis/pluginregistration/v1
package plugins
