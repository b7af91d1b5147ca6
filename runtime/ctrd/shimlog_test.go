package ctrd

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/islet-edge/islet/runtime/shim"
)

// TestCutShimLog checks that the agent truncates the log of an old shim if the log is too large. A shim of an earlier version does not
// limit its own log.
func TestCutShimLog(t *testing.T) {
	s := newShims(&Runtime{log: slog.New(slog.DiscardHandler), dirs: dirs{sockets: t.TempDir()}})
	for size, want := range map[int64]int64{maxShimLog: maxShimLog, maxShimLog + 1: 0} {
		path := filepath.Join(s.r.dirs.sockets, "1.log")
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		s.cutLog(&shimGroup{name: "1"}, &shim.Client{}) // another client than the client of the group, so that the call is not repeated
		if st, err := os.Stat(path); err != nil || st.Size() != want {
			t.Errorf("a log of %d bytes has %v, %v; want %d", size, st.Size(), err, want)
		}
	}
}
