package node

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"
)

// TestAdviseOnMedium checks that only an error of the disk with the bundle gets advice about it, not one of the disk of the node.
func TestAdviseOnMedium(t *testing.T) {
	read := func(name string, err error) error {
		return fmt.Errorf("image x: %w", errors.Join(errors.New("unpack"), &fs.PathError{Op: "read", Path: name, Err: err}))
	}
	for name, tt := range map[string]struct {
		err    error
		advice bool
	}{
		"a tar":               {read("/media/kiosk", syscall.EIO), true},
		"a blob":              {read("/media/kiosk/blobs/sha256/0", syscall.ENODEV), true},
		"the node's disk":     {read("/var/lib/islet/x", syscall.EIO), false},
		"a name like it":      {read("/media/kiosk-2", syscall.EIO), false},
		"another error":       {read("/media/kiosk", syscall.EACCES), false},
		"an error of no file": {syscall.EIO, false},
		"nothing":             {nil, false},
	} {
		got := adviseOnMedium("/media/kiosk", tt.err)
		if (got != tt.err) != tt.advice || !errors.Is(got, tt.err) {
			t.Errorf("%s: %v", name, got)
		}
	}
}
