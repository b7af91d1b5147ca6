package probe

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
)

// maxFile is the maximum number of bytes that are read from the file.
const maxFile = 256 << 10

// failureFile stores the number of consecutive failures of each startup and liveness probe. The file is on tmpfs: like
// running containers, it survives the end of the agent but not a reboot. So a hanging container is stopped even if the
// agent restarts often. Only Run's goroutine uses a failureFile.
type failureFile struct {
	path    string // if empty, nothing is stored
	failing map[string]int32
	log     *slog.Logger
}

// load reads the file of an earlier run of the agent. It skips lines that it cannot parse.
func (m *failureFile) load() {
	m.failing = map[string]int32{}
	f, err := os.Open(m.path)
	if err != nil {
		return // the file is missing or not configured
	}
	defer f.Close()
	for lines := bufio.NewScanner(io.LimitReader(f, maxFile)); lines.Scan(); {
		var id, kind string
		var n int32
		if c, err := fmt.Sscanf(lines.Text(), "%s %s %d", &id, &kind, &n); c == 3 && err == nil && n > 0 {
			m.failing[id+" "+kind] = n
		}
	}
}

// set stores the number of consecutive failures of a probe. The number is 0 after a success.
func (m *failureFile) set(id string, k kind, n int32) {
	key := id + " " + k.String()
	if k == readiness || id == "" || m.failing[key] == n { // readiness is stored in the pod's status
		return
	}
	if n > 0 {
		m.failing[key] = n
	} else {
		delete(m.failing, key)
	}
	if m.path == "" {
		return
	}
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(m.failing)) {
		fmt.Fprintf(&b, "%s %d\n", key, m.failing[key])
	}
	if err := os.WriteFile(m.path, []byte(b.String()), 0o600); err != nil { // an incomplete file is still useful
		m.log.Warn("a restart of the agent will forget which probes fail", "error", err)
	}
}

func (m *failureFile) get(id string, k kind) int32 { return m.failing[id+" "+k.String()] }
