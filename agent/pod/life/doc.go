// Package life is a floor of package pod: what keeps pods as they are wanted.
//
//	pods      what is wanted, what was decided, and what is said of a pod
//	worker    one goroutine for each pod, which does what the plan says
//	observe   what the container runtime last said of each pod
//	features  what the runtime handler of a pod can
//	recovery  fills a store that was lost with what runs
package life
