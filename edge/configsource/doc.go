// Package configsource follows one ConfigMap. It sends no other requests.
//
//	Want (namespace, name) --get, watch of that name--> Take(ConfigMap)
//	                                                '--> Problem(why not)
//
// It needs the verbs get and watch on that one object. With get alone, which kubeadm grants nodes for
// kubelet-config, islet notices a change within some minutes. If the ConfigMap cannot be read, the
// configuration that was received last stays in effect.
package configsource
