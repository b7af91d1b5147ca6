// Package podtest builds pods for unit tests. A test sets only the fields that it needs:
//
//	podtest.New("web", podtest.Image("app:1"), podtest.Requests(podtest.CPUAndMemory("100m", "")))
//
// New applies the options in order. An option for a container changes the pod's last container.
package podtest
