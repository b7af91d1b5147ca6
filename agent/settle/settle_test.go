package settle

import (
	"context"
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
		busy.Store(true)
		began := time.Now()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		s := &Settler{
			changed: func() <-chan struct{} { mu.Lock(); defer mu.Unlock(); return news },
			busy:    func() { busy.Store(true) },
			free: func() error {
				mu.Lock()
				defer mu.Unlock()
				busy.Store(false)
				freed = append(freed, time.Since(began))
				return nil
			},
			failed: func(err error) { t.Error(err) },
		}
		go func() { ended <- s.Run(ctx) }()
		synctest.Wait()
		for range 5 { // pods start
			<-time.After(2 * time.Second)
			change()
		}
		<-time.After(10 * time.Minute) // nothing happens
		synctest.Wait()
		if len(freed) != 1 || freed[0] != 13*time.Second {
			t.Fatalf("freed at %v, want once, 3 s after the last change", freed)
		}
		if busy.Load() {
			t.Error("still busy")
		}
		change()
		if !busy.Load() {
			t.Error("not busy again")
		}
		<-time.After(time.Hour)
		synctest.Wait()
		if len(freed) != 2 {
			t.Errorf("freed at %v, want once more after the second change", freed)
		}
		change()
		<-time.After(quiet)
		synctest.Wait()
		change()
		if !busy.Load() {
			t.Error("not busy with the first change after memory was given back")
		}
		<-time.After(time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(freed) != 4 || freed[3]-freed[2] != seldom {
			t.Errorf("freed at %v, want the last two %s apart", freed, seldom)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestFreeMemory goes on running on pages that were given back.
func TestFreeMemory(t *testing.T) {
	for range 3 {
		if err := freeMemory(); err != nil {
			t.Fatal(err)
		}
	}
}
