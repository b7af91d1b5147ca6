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

// maxMemory is how many bytes of the file of the last run are read at most.
const maxMemory = 256 << 10

// A memory has how often each startup and liveness probe has failed in a row. It is stored in a file in memory, which like
// running containers outlives the agent, but not a reboot. A container that hangs is therefore stopped, however often the
// agent restarts. Only the goroutine of Run uses it.
type memory struct {
	path    string // empty: it is forgotten with the agent
	failing map[string]int32
	log     *slog.Logger
}

// load reads the file of the last run. Lines that it cannot parse are skipped.
func (m *memory) load() {
	m.failing = map[string]int32{}
	f, err := os.Open(m.path)
	if err != nil {
		return // this is the first run since the boot, or no file is configured
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

// set stores n failures in a row; 0: the last answer was no failure.
func (m *memory) set(id string, k kind, n int32) {
	key := id + " " + k.String()
	if k == readiness || id == "" || m.failing[key] == n { // the status has the readiness
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
	if err := os.WriteFile(m.path, []byte(b.String()), 0o600); err != nil { // a part of the file is better than nothing
		m.log.Warn("a restart of the agent will forget which probes fail", "error", err)
	}
}

func (m *memory) get(id string, k kind) int32 { return m.failing[id+" "+k.String()] }
