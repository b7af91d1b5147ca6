package server

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestCompressor checks the work of the compressor while ten logs are rotated often. It compresses one file at a time and no file twice. It
// works for at most a fifth of the time.
func TestCompressor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 100 * time.Millisecond
		var mu sync.Mutex
		var done []string
		running := 0
		c := &compressor{compress: func(_, name string) {
			mu.Lock()
			done = append(done, name)
			if running++; running > 1 {
				t.Error("two files are compressed at the same time")
			}
			mu.Unlock()
			time.Sleep(took)
			mu.Lock()
			running--
			mu.Unlock()
		}}
		all := func() []string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(done)
		}
		begin := time.Now()
		for round := range 100 { // each log has two files, and one of them was already enqueued in an earlier round
			for l := range 10 {
				log := fmt.Sprint("log", l)
				c.enqueue(log, "/", []string{fmt.Sprint(log, " ", round), fmt.Sprint(log, " ", round+1)})
			}
			time.Sleep(50 * time.Millisecond)
		}
		last := time.Now()
		for c.busy() {
			time.Sleep(time.Second)
		}
		got := all()
		if most := int(last.Sub(begin)/(took*(1+pauseFactor))) + 21; len(got) > most || len(got) < 5 {
			t.Errorf("%d files were compressed, want at most %d", len(got), most)
		}
		slices.Sort(got)
		if n := len(got); len(slices.Compact(got)) != n {
			t.Errorf("files were compressed twice: %v", got)
		}

		// If a log is rotated while its files are compressed, its other files must wait for the next rotation.
		before := len(got)
		c.enqueue("log", "/", []string{"a", "b"})
		time.Sleep(took / 2)
		c.enqueue("log", "/", []string{"a", "b", "c"})
		time.Sleep(time.Minute)
		if got := all()[before:]; !slices.Equal(got, []string{"a"}) {
			t.Errorf("compressed files: %v", got)
		}
		c.enqueue("other", "/", []string{"d"})
		time.Sleep(took / 2)
		c.enqueue("log", "/", []string{"b"})
		c.enqueue("log", "/", nil) // an empty list, because the log is rotated too fast
		time.Sleep(time.Minute)
		if got := all()[before:]; !slices.Equal(got, []string{"a", "d"}) || c.busy() {
			t.Errorf("compressed files: %v", got)
		}
	})
}

func (c *compressor) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.active
}
