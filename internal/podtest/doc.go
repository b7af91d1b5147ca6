// Package podtest builds pods for unit tests. A test states only what matters to it:
//
//	podtest.New("web", podtest.Image("app:1"), podtest.Requests(podtest.CPUAndMemory("100m", "")))
//
// Options apply in order. An option about a container changes the last one.
package podtest
