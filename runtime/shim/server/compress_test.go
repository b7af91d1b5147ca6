package server

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestCompressor: however many logs are rotated however often, one file is compressed at a time,
// none twice, none of a log that is rotated while it is compressed, and this takes at most a fifth
// of the time.
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
				t.Error("two files are compressed at once")
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
		for round := range 100 { // of ten logs, each with two files that an earlier rotation listed too
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
			t.Errorf("%d files are compressed, at most %d may be", len(got), most)
		}
		slices.Sort(got)
		if n := len(got); len(slices.Compact(got)) != n {
			t.Errorf("files are compressed twice: %v", got)
		}

		// A log that is rotated while it is compressed waits for its next rotation.
		before := len(got)
		c.enqueue("log", "/", []string{"a", "b"})
		time.Sleep(took / 2)
		c.enqueue("log", "/", []string{"a", "b", "c"})
		time.Sleep(time.Minute)
		if got := all()[before:]; !slices.Equal(got, []string{"a"}) {
			t.Errorf("compressed are %v", got)
		}
		c.enqueue("other", "/", []string{"d"})
		time.Sleep(took / 2)
		c.enqueue("log", "/", []string{"b"})
		c.enqueue("log", "/", nil) // it is rotated too fast
		time.Sleep(time.Minute)
		if got := all()[before:]; !slices.Equal(got, []string{"a", "d"}) || c.busy() {
			t.Errorf("compressed are %v", got)
		}
	})
}

func (c *compressor) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.active
}
