// Package health checks whether the node works: whether the workers of pods start, the runtime responds, and the pod
// network is ready.
package health
