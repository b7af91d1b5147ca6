package node

import (
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

// TestHostOutlivesThread: a machine goes on when the thread ends that booted it, as one does
// that has entered a network and is not to be used again.
func TestHostOutlivesThread(t *testing.T) {
	booted, over := make(chan *machine.Host), make(chan struct{})
	defer close(over)
	var thread int
	var boot func()
	boot = func() {
		runtime.LockOSThread() // never unlocked
		if thread = syscall.Gettid(); thread == syscall.Getpid() {
			go boot() // the first thread would not end
			<-over
			runtime.UnlockOSThread()
			return
		}
		h, err := machine.BootHost("outlives")
		if err != nil {
			t.Error(err)
		}
		booted <- h
	}
	go boot()
	h := <-booted
	if h == nil {
		return
	}
	defer h.Halt()
	for late := time.Now().Add(10 * time.Second); syscall.Tgkill(syscall.Getpid(), thread, 0) == nil; runtime.Gosched() {
		if time.Now().After(late) {
			t.Fatal("the thread goes on")
		}
	}
	if out, err := h.Command("hostname").CombinedOutput(); err != nil {
		t.Errorf("the host has gone with it: %s %v", out, err)
	}
}
