// Package configsource follows one ConfigMap, and asks the API server for nothing else.
//
//	Want (namespace, name) --get, watch of that name--> Take(ConfigMap)
//	                                                '--> Problem(why not)
//
// It needs the verbs get and watch on that one object. Who may only get it, as kubeadm lets
// nodes get kubelet-config, sees a change within some minutes. That it cannot be read
// changes nothing: what was taken stays. Where nothing is wanted it waits for Changed.
package configsource
