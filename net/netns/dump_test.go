package netns

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestDump checks that only an interrupted dump is repeated, and not without end.
func TestDump(t *testing.T) {
	interrupted, other := fmt.Errorf("list: %w", netlink.ErrDumpInterrupted), errors.New("too many open files")
	for _, x := range []struct {
		errs []error // of the attempts
		want error
	}{
		{[]error{nil}, nil}, {[]error{other}, other}, {[]error{interrupted, nil}, nil}, {[]error{interrupted, interrupted, other}, other},
		{[]error{interrupted, interrupted, interrupted}, interrupted},
	} {
		attempts := 0
		err := Dump(func() error { attempts++; return x.errs[attempts-1] })
		if attempts != len(x.errs) || !errors.Is(err, x.want) {
			t.Errorf("%v: %d attempts, %v", x.errs, attempts, err)
		}
	}
}
