package agent

import (
	"sync"
	"testing"
)

// TestCell: a cell is empty until it is set, and is set once, while others read it.
func TestCell(t *testing.T) {
	var c cell[*int]
	if c.get() != nil {
		t.Error("it holds something before it is set")
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if n := c.get(); n != nil && *n != 7 {
				t.Errorf("it holds %d", *n)
			}
		})
	}
	seven := 7
	c.set(&seven)
	wg.Wait()
	if n := c.get(); n != &seven {
		t.Errorf("it holds %v", n)
	}
	defer func() {
		if recover() == nil {
			t.Error("it was set twice")
		}
	}()
	c.set(&seven)
}
