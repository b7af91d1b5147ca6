package idlememory

import (
	"context"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestSettling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		news := make(chan struct{})
		change := func() {
			mu.Lock()
			close(news)
			news = make(chan struct{})
			mu.Unlock()
			synctest.Wait()
		}
		var freed []time.Duration
		var busy atomic.Bool
		var forgot atomic.Int32
		var allocated, step atomic.Uint64
		step.Store(minGarbage)
		busy.Store(true)
		began := time.Now()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		s := &Settler{
			changed: func() <-chan struct{} { mu.Lock(); defer mu.Unlock(); return news },
			onBusy:  func() { busy.Store(true) },
			free: func(bool) error {
				mu.Lock()
				defer mu.Unlock()
				busy.Store(false)
				freed = append(freed, time.Since(began))
				return nil
			},
			logFailure: func(err error) { t.Error(err) },
			taskSignal: make(chan struct{}, 1),
			forget:     func() error { forgot.Add(1); return nil },
			allocated:  func() uint64 { return allocated.Add(step.Load()) },
		}
		s.TaskRan() // pods are starting
		go func() { ended <- s.Run(ctx) }()
		synctest.Wait()
		for range 5 { // pods are starting
			<-time.After(2 * time.Second)
			change()
		}
		<-time.After(10 * time.Minute) // nothing changes
		synctest.Wait()
		if len(freed) != 2 || freed[0] != 13*time.Second || freed[1] != freed[0]+settleTime {
			t.Fatalf("freed at %v, want 3 s after the last change, and once more after settleTime", freed)
		}
		if busy.Load() {
			t.Error("still busy")
		}
		if forgot.Load() != 1 {
			t.Errorf("the program's pages were dropped %d times, want once after the start", forgot.Load())
		}
		s.TaskRan()
		<-time.After(taskTime / 2)
		s.TaskRan()
		<-time.After(taskTime)
		synctest.Wait()
		if forgot.Load() != 2 || len(freed) != 2 {
			t.Errorf("forgot %d times, freed %d times after two short tasks in a row", forgot.Load(), len(freed))
		}
		change()
		if !busy.Load() {
			t.Error("not busy again")
		}
		<-time.After(time.Hour)
		synctest.Wait()
		if len(freed) != 4 {
			t.Errorf("freed at %v, want twice more after the second change", freed)
		}
		change()
		<-time.After(quietTime)
		synctest.Wait()
		change()
		if !busy.Load() {
			t.Error("not busy with the first change after memory was given back")
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if len(freed) != 7 || freed[5]-freed[4] != minInterval {
			t.Errorf("freed at %v, want %s between those of two consecutive changes", freed, minInterval)
		}
		step.Store(minGarbage - 1)
		change()
		before := forgot.Load()
		<-time.After(time.Hour)
		synctest.Wait()
		if len(freed) != 8 || forgot.Load() != before+1 {
			t.Errorf("freed at %v, want no second time when little was allocated meanwhile; forgot %d times, want once", freed,
				forgot.Load()-before)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestTaskIsOneBurst checks that the pages of the executable are returned once after a task, in the task's own burst of activity. A burst
// ends with a pause of 100 ms.
func TestTaskIsOneBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forgot, allocated := make(chan time.Time, 8), uint64(0)
		ctx, stop := context.WithCancel(t.Context())
		s := &Settler{
			changed: func() <-chan struct{} { return nil }, onBusy: func() {}, free: func(bool) error { return nil },
			forget: func() error { forgot <- time.Now(); return nil }, taskSignal: make(chan struct{}, 1),
			allocated: func() uint64 { allocated += minGarbage; return allocated },
		}
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		for range 6 {
			<-time.After(10 * time.Second)
			synctest.Wait()
			s.TaskRan()
			synctest.Wait()
			task := time.Now()
			<-time.After(5 * time.Second)
			if len(forgot) != 1 {
				t.Fatalf("the pages were returned %d times after a task", len(forgot))
			}
			if late := (<-forgot).Sub(task); late >= 100*time.Millisecond {
				t.Errorf("the pages were returned %v after a task", late)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestCollections checks how often the garbage is collected: twice after a change of many pods, and once after the change of a single pod,
// because that pod would pay for the second collection alone.
func TestCollections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		twice, change := make(chan bool, 8), make(chan struct{})
		var mu sync.Mutex // guards change
		var allocated atomic.Uint64
		ctx, stop := context.WithCancel(t.Context())
		s := &Settler{
			changed: func() <-chan struct{} { mu.Lock(); defer mu.Unlock(); return change }, onBusy: func() {}, forget: func() error { return nil },
			free: func(both bool) error { twice <- both; return nil }, taskSignal: make(chan struct{}, 1), allocated: allocated.Load,
		}
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		for _, tt := range []struct {
			rest, change, later uint64 // bytes that are allocated before the change, until the first return, and until the second
			want                []bool
		}{
			{0, 10 * largeChange, minGarbage, []bool{true, true}},
			{0, largeChange - 1, minGarbage, []bool{false, false}},
			{0, minGarbage, 0, []bool{false}},
			{0, largeChange, 0, []bool{true}},
			{10 * largeChange, minGarbage, 0, []bool{false}},
		} {
			allocated.Add(tt.rest)
			mu.Lock()
			close(change)
			change = make(chan struct{})
			mu.Unlock()
			synctest.Wait()
			allocated.Add(tt.change)
			got := []bool{<-twice}
			allocated.Add(tt.later)
			<-time.After(settleTime + time.Second)
			synctest.Wait()
			for len(twice) > 0 {
				got = append(got, <-twice)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%+v: collected twice: %v", tt, got)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestFreeMemory checks that the program continues to run after it has returned memory pages to the kernel, and counts the garbage
// collections.
func TestFreeMemory(t *testing.T) {
	t.Setenv("GOGC", "off") // freeMemory does not change it
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for _, twice := range []bool{false, true, false} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := freeMemory(twice); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		want := uint32(1)
		if twice {
			want = 2
		}
		if got := after.NumGC - before.NumGC; got != want {
			t.Errorf("twice %v: %d collections, want %d", twice, got, want)
		}
	}
}
