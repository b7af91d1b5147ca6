package server

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
)

// oomKilled reports whether the kernel killed a process of the cgroup because of a memory limit. Call it as soon as the container has
// ended, because systemd removes the empty cgroup. The parent's file, which is used then, also counts the kills in the pod's other
// containers.
func (c cgroupFiles) oomKilled() bool {
	if n, err := oomKills(c.events); err == nil {
		return n > 0
	}
	n, err := oomKills(c.parentEvents)
	return err == nil && n > c.oomKillsBefore
}

// oomKills returns the counter oom_kill of a file. It has the same name in cgroup v1 and v2. The error is not nil if the file does not
// exist, also if its cgroup is removed while the file is read.
func oomKills(path string) (int64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		if v, ok := strings.CutPrefix(sc.Text(), "oom_kill "); ok {
			return strconv.ParseInt(v, 10, 64)
		}
	}
	return 0, nil
}
