// Package event declares the one interface for recording events of Kubernetes. It is shared by all
// parts, where other interfaces are declared by the package that calls them.
//
//	agent/..., edge/podcertificate --Pod, Node--> Sink <-- edge/outbox.Events
//	                                               ^
//	                                 internal/eventtest.Sink, in tests
package event
