// Package health checks whether the node works: whether pods get a worker, the runtime answers, and
// the pod network is ready.
package health
