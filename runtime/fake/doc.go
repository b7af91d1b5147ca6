// Package fake is a cri.Runtime in memory, for tests. It manages sandboxes and containers, but runs
// no processes. A test ends the containers, and can make any call fail.
//
//	f := fake.New("image:1")
//	f.Fail = func(call, subject string) error { ... }
//	f.End(id, 1)    f.LoseSandbox(id)    f.Reboot()
package fake
