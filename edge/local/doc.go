// Package local manages the ConfigMaps, Secrets and PersistentVolumeClaims that this node's manifests define. Their sources are the
// manifest directory, the manifest URL, the command islet apply, and the bundle in force. Each source has its own objects. The pods of a
// source reference only objects of the same source, by namespace and name. They never reference objects of the API server, and pods of the
// API server never reference these objects.
//
//	directory, URL, bundle --Set--> merge --> store (sealed) --> rows --ConfigMap, Secret, Claim--> pods of that source
//	islet apply --Apply--------------^                            '--Changed(uid)--> volumes are refreshed, waiting pods retry
//
// Register records the references of a pod, and Release removes them. Reads never wait for the disk. After a start, the stored objects are
// available before any source has been read. An object that was removed from its manifest is kept until the last pod that already uses it
// is released. Other pods do not see it. Package object does the same for objects of the API server.
//
// A claim belongs to the first source that defines it, because its name is also the name of a directory.
package local
