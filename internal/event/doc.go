// Package event declares the one interface for recording events of Kubernetes. All parts of islet share it. Other
// interfaces are declared by the package that calls them.
//
//	agent/..., edge/podcertificate --Pod, Node--> Sink <-- edge/outbox.Events
//	                                               ^
//	                                 internal/eventtest.Sink, in tests
package event
