// Package pods has the commands that show pods, wait for them and restart them:
//
//	agent --> pods, origins --> names, labels --> list, describe
//	agent --> events --> of the node or of a pod --> events
//	agent --> podstate.Watch --> goal: condition, deletion or jsonpath --> wait
//	restart --> agent --> progress --> the pod is ready again
//
// The package podstate interprets the state of pods, also for other commands. The package jsonpath finds values of objects.
package pods
