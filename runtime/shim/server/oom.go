package server

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
)

// oomKilled reports whether the kernel killed a process of the cgroup because of a memory limit.
func (c cgroupFiles) oomKilled() bool {
	if pathExists(c.events) {
		return oomKills(c.events) > 0
	}
	return oomKills(c.parentEvents) > c.oomKillsBefore
}

// oomKills returns the counter oom_kill of a file. It has the same name in cgroup v1 and v2.
func oomKills(path string) int64 {
	if path == "" {
		return 0
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		if v, ok := strings.CutPrefix(sc.Text(), "oom_kill "); ok {
			n, _ := strconv.ParseInt(v, 10, 64)
			return n
		}
	}
	return 0
}
