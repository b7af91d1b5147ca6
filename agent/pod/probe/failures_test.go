package probe

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// TestFailuresOutliveTheAgent checks that the failures of a liveness probe are counted across restarts of the agent. A container that has
// failed stays unhealthy. Each container ID has its own count.
func TestFailuresOutliveTheAgent(t *testing.T) {
	bubble(t, pod(withLiveness(), withReadiness()), func(w *world) {
		w.answer(livePort, errRefused)
		w.advanceTime(25 * time.Second) // the probe fails twice
		w.end()
		w.start()
		w.checkHealth("ready")
		w.advanceTime(10 * time.Second)
		w.checkHealth("unhealthy")
		w.end()
		w.forget()
		w.start()
		w.checkHealth("unhealthy")
		if _, _, changes := w.forget(); changes != 1 {
			t.Errorf("%d changes", changes)
		}
		w.change(func(in *plan.Input) { in.Observed.Containers[0] = running("c2", 1) })
		w.advanceTime(15 * time.Second) // the probe fails once
		w.checkHealth("ready")
		w.answer(livePort, nil)
		w.advanceTime(10 * time.Second) // the probe does not fail
		w.answer(livePort, errRefused)
		w.end()
		w.start()
		w.advanceTime(19 * time.Second)
		w.checkHealth("ready")
		w.change(func(in *plan.Input) { in.Want = nil })
		if b, err := os.ReadFile(w.file); err != nil || len(b) > 0 {
			t.Errorf("%q, %v is left", b, err)
		}
	})
}

// TestForeignMemory checks that a file with invalid or huge content does not make any container unhealthy. Only a part of a huge file is
// read.
func TestForeignMemory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "probes")
	for _, text := range []string{"", "\n\n", "c1 Liveness", "c1 Liveness x\n", "c1 Liveness -3\n", "c1\x00 Liveness 3\n", strings.Repeat("c1", maxFile) + " Liveness 3\n", strings.Repeat("x Liveness 3\n", maxFile/10) + "c1 Liveness 3\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		m := failureFile{path: file}
		m.load()
		if n := m.get("c1", liveness); n != 0 || len(m.failing) > 1 {
			t.Errorf("%.20q: %d of %d", text, n, len(m.failing))
		}
	}
	m := failureFile{path: filepath.Join(t.TempDir(), "none", "probes"), log: slog.New(slog.DiscardHandler)}
	m.load()
	m.set("c1", liveness, 2) // the file cannot be written
	if m.get("c1", liveness) != 2 {
		t.Error("the count is lost")
	}
}
