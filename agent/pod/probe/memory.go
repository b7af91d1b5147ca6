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

// maxMemory bounds what is read of the last run, in bytes.
const maxMemory = 256 << 10

// A memory has, of each check that may end a container, how often in a row it has failed.
// It is a file in memory, as are containers that run: it outlives the agent, not the
// machine. So a container that hangs is given up, however often the agent restarts. It is
// of the goroutine of Run.
type memory struct {
	path    string // empty: it is forgotten with the agent
	failing map[string]int32
	log     *slog.Logger
}

// load takes over what the last run knew. What is no line of its own making is skipped.
func (m *memory) load() {
	m.failing = map[string]int32{}
	f, err := os.Open(m.path)
	if err != nil {
		return // the first run since the machine started, or it is to be forgotten
	}
	defer f.Close()
	for lines := bufio.NewScanner(io.LimitReader(f, maxMemory)); lines.Scan(); {
		var id, kind string
		var n int32
		if c, err := fmt.Sscanf(lines.Text(), "%s %s %d", &id, &kind, &n); c == 3 && err == nil && n > 0 {
			m.failing[id+" "+kind] = n
		}
	}
}

// set notes n failures in a row; 0: the last answer was none.
func (m *memory) set(id string, k kind, n int32) {
	key := id + " " + k.String()
	if k == readiness || id == "" || m.failing[key] == n { // the status tells of readiness
		return
	}
	if m.failing[key] = n; n == 0 {
		delete(m.failing, key)
	}
	if m.path == "" {
		return
	}
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(m.failing)) {
		fmt.Fprintf(&b, "%s %d\n", key, m.failing[key])
	}
	if err := os.WriteFile(m.path, []byte(b.String()), 0o600); err != nil { // the half of it is better than nothing
		m.log.Warn("a restart of the agent will forget which probes fail", "error", err)
	}
}

func (m *memory) get(id string, k kind) int32 { return m.failing[id+" "+k.String()] }
