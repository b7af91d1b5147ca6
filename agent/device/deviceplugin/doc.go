// Package deviceplugin serves device plugins (v1beta1). These are programs on this node, mostly in pods, that list
// the devices of a resource and return the configuration with which a container can use them.
//
//	plugin --Register--> <root-dir>/device-plugins/kubelet.sock --+
//	plugin's socket below <root-dir>/plugins_registry ------------+--> dial, GetDevicePluginOptions
//	plugin --ListAndWatch, a list after the other--> device.Link        |
//	device.Manager --Allocate, PreStartContainer, GetPreferredAllocation'--> plugin
//
// Like a kubelet, the agent recreates its socket at each start and removes the sockets of plugins. The plugins detect
// this and register again. Until the first registration, only one goroutine runs, which waits for a connection.
//
// A plugin may be faulty or malicious, so its messages, names, lists and the duration of its calls are limited. A
// plugin that hangs delays only the pods that request its devices, and pods that lack what is reserved for those.
// https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/
package deviceplugin
