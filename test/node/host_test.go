package node

import (
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

// TestHostOutlivesThread checks that a test host continues to run when the thread that booted it exits. A thread exits when a goroutine
// that is locked to it returns.
func TestHostOutlivesThread(t *testing.T) {
	booted, over := make(chan *machine.Host), make(chan struct{})
	defer close(over)
	var thread int
	var boot func()
	boot = func() {
		runtime.LockOSThread() // never unlocked
		if thread = syscall.Gettid(); thread == syscall.Getpid() {
			go boot() // the main thread would not exit
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
			t.Fatal("the thread has not exited")
		}
	}
	if out, err := h.Command("hostname").CombinedOutput(); err != nil {
		t.Errorf("the host exited with the thread: %s %v", out, err)
	}
}
