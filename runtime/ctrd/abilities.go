package ctrd

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// abilities remembers what OCI runtimes can do, asked once for each program as it lies
// on the disk. The zero value is ready.
type abilities struct {
	mu    sync.Mutex
	known map[string]known
}

type known struct {
	size    int64
	changed time.Time
	ability
}

type ability struct {
	readOnlyTrees bool // mounts that are read-only with all below them (KEP-3857)
}

// of asks a program at most once.
func (a *abilities) of(program string) ability {
	st, err := os.Stat(program)
	if err != nil {
		return ability{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	k, ok := a.known[program]
	if !ok || k.size != st.Size() || !k.changed.Equal(st.ModTime()) {
		k = known{size: st.Size(), changed: st.ModTime(), ability: askAbility(program)}
		if a.known == nil {
			a.known = map[string]known{}
		}
		a.known[program] = k
	}
	return k.ability
}

// askAbility runs `PROGRAM features`, whose answer the OCI runtime specification
// describes. What does not answer can do nothing special, but for crun: it had the
// ability before it had the command.
// https://github.com/opencontainers/runtime-spec/blob/main/features.md
func askAbility(program string) ability {
	if !kernel(5, 12) { // mount_setattr(2)
		return ability{}
	}
	ctx, cancel := context.WithTimeout(context.Background(), versionTime)
	defer cancel()
	var f struct {
		MountOptions []string `json:"mountOptions"`
	}
	out, err := exec.CommandContext(ctx, program, "features").Output()
	if err == nil && json.Unmarshal(out, &f) == nil {
		return ability{readOnlyTrees: slices.Contains(f.MountOptions, "rro")}
	}
	out, err = exec.CommandContext(ctx, program, "--version").Output()
	return ability{readOnlyTrees: err == nil && newCrun(string(out))}
}

// newCrun says whether the text of --version is that of crun 1.4 or later.
func newCrun(text string) bool {
	line, _, _ := strings.Cut(text, "\n")
	var major, minor int
	n, _ := fmt.Sscanf(line, "crun version %d.%d", &major, &minor)
	return n == 2 && (major > 1 || major == 1 && minor >= 4)
}

// kernel says whether the kernel is of this version or later.
func kernel(major, minor int) bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	var a, b int
	n, _ := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &a, &b)
	return n == 2 && (a > major || a == major && b >= minor)
}
