// Package fake is a cri.Runtime in memory, for tests: it keeps track of sandboxes and containers
// but runs nothing. A test ends containers itself, and can make any call fail.
//
//	f := fake.New("image:1")
//	f.Fail = func(call, subject string) error { ... }
//	f.End(id, 1)    f.LoseSandbox(id)    f.Reboot()
package fake
