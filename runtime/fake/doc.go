// Package fake is a cri.Runtime in memory, for tests of what uses one: it keeps
// sandboxes and containers and runs nothing. A test ends containers itself, and
// may make any call fail.
//
//	f := fake.New("image:1")
//	f.Fail = func(call, subject string) error { ... }
//	f.End(id, 1)    f.LoseSandbox(id)    f.Reboot()
package fake
