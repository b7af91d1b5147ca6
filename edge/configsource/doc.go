// Package configsource follows one ConfigMap. It sends no other requests.
//
//	WantedName (namespace, name) --get, watch of that name--> Receive(ConfigMap)
//	                                                '--> OnProblem(why not)
//
// The node needs the permissions get and watch for that object. kubeadm permits nodes only to get kubelet-config. In such a cluster, islet
// detects a change within some minutes. If the ConfigMap cannot be read, the last received configuration stays in effect.
package configsource
