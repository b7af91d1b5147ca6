// Package deviceplugin makes the devices of device plugins (v1beta1) known: programs beside
// the agent, most of them pods, that list devices of a resource and say what a container
// needs of each.
//
//	plugin --Register--> <root-dir>/device-plugins/kubelet.sock --+
//	plugin's socket below <root-dir>/plugins_registry ------------+--> dial, GetDevicePluginOptions
//	plugin --ListAndWatch, a list after the other--> device.Link        |
//	device.Manager --Allocate, PreStartContainer, GetPreferredAllocation'--> plugin
//
// The socket is made anew whenever the agent starts, and those of plugins are removed, as a
// kubelet does: plugins watch for that and register again. Until somebody does, all of it
// is one goroutine that waits for a connection.
//
// A plugin may be broken or mean harm: its messages, names, lists and times are bounded, and
// one that hangs holds up the pods that ask for its devices only.
// https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/
package deviceplugin
