// Package fake implements cri.Runtime and cri.Images in memory, for tests. It manages sandboxes and
// containers, but runs no processes. A test can end containers and make calls fail.
//
//	f := fake.New("image:1")
//	f.Fail = func(call, subject string) error { ... }
//	f.End(id, 1)    f.LoseSandbox(id)    f.Reboot()
package fake
