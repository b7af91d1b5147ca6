package volatile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

// TestSeedUnreadable checks a file that the disk can read only in part. The copy must not contain the part. Other errors are reported.
func TestSeedUnreadable(t *testing.T) { synctest.Test(t, testSeedUnreadable) }

func testSeedUnreadable(t *testing.T) {
	to := filepath.Join(t.TempDir(), "metadata.db")
	for _, test := range []struct {
		why     error
		partial bool
		want    error
	}{
		{unix.EIO, true, nil},
		{unix.EIO, false, nil},
		{unix.ENOSPC, true, unix.ENOSPC},
		{nil, true, nil},
	} {
		err := seedFile("from", to, func(from, to string) error {
			if test.partial {
				if err := os.WriteFile(to, []byte("part"), 0o600); err != nil {
					return err
				}
			}
			if test.why == nil {
				return nil
			}
			return fmt.Errorf("read %s: %w", from, test.why)
		})
		if !errors.Is(err, test.want) {
			t.Errorf("%v: %v", test.why, err)
		}
		if _, err := os.Lstat(to); errors.Is(test.why, unix.EIO) && !os.IsNotExist(err) {
			t.Errorf("%v: the file exists (%v)", test.why, err)
		}
	}
	attempts := 0
	err := seedFile("from", to, func(_, to string) error { // the disk could not read it for a moment
		if attempts++; attempts == 1 {
			return errors.Join(os.WriteFile(to, []byte("part"), 0o600), unix.EIO)
		}
		return os.WriteFile(to, []byte("whole"), 0o600)
	})
	if text, readErr := os.ReadFile(to); err != nil || readErr != nil || string(text) != "whole" {
		t.Errorf("%q, %v, %v", text, err, readErr)
	}
}
