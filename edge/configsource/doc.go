// Package configsource follows one ConfigMap. It sends no other requests.
//
//	WantedName (namespace, name) --get, watch of that name--> Receive(ConfigMap)
//	                                                '--> OnProblem(why not)
//
// It needs the verbs get and watch on that object. kubeadm grants nodes only get on kubelet-config. Then islet detects a change within
// some minutes. If the ConfigMap cannot be read, the last received configuration stays in effect.
package configsource
