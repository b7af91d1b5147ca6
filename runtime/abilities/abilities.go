package abilities

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go/features"
	"golang.org/x/sys/unix"
)

// An Ability contains the optional features that an OCI runtime supports on this kernel.
type Ability struct {
	// ReadOnlyTrees reports support for recursive read-only mounts (KEP-3857).
	ReadOnlyTrees bool
	// Users reports support for user namespaces with idmapped mounts (KEP-127). It does not mean
	// that the file systems of images and volumes support idmapped mounts.
	Users bool
	// Scheduling reports support for process.scheduler and process.ioPriority. Other programs ignore both.
	Scheduling bool
}

// A Cache caches the abilities of programs. The zero value is ready to use.
type Cache struct {
	mu      sync.Mutex
	entries map[string]cacheEntry

	timeout time.Duration // timeout of a program; 0 means answerTimeout
}

type cacheEntry struct {
	size    int64
	changed time.Time
	expires time.Time // when to run the program again; zero means when its file changes
	Ability
}

// Get returns the abilities of a program. It runs the program again only if its file has changed.
// If the program exceeds the timeout, possibly because the machine is overloaded, Get runs it again
// after retryDelay. A missing program has no abilities.
func (k *Cache) Get(program string) Ability {
	st, err := os.Stat(program)
	if err != nil {
		return Ability{}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	entry, ok := k.entries[program]
	fresh := entry.expires.IsZero() || !time.Now().After(entry.expires)
	if !ok || entry.size != st.Size() || !entry.changed.Equal(st.ModTime()) || !fresh {
		entry = cacheEntry{size: st.Size(), changed: st.ModTime()}
		var err error
		if entry.Ability, err = readFeatures(program, cmp.Or(k.timeout, answerTimeout)); errors.Is(err, context.DeadlineExceeded) {
			entry.expires = time.Now().Add(retryDelay)
		}
		if k.entries == nil {
			k.entries = map[string]cacheEntry{}
		}
		k.entries[program] = entry
	}
	return entry.Ability
}

// readFeatures runs the command "features" of a program. If the command fails, readFeatures checks the version of crun: crun supports
// recursive read-only mounts since version 1.4, but has this command only in later versions. For any other program without the command, it
// returns no features. The error is context.DeadlineExceeded if the program exceeds the timeout.
func readFeatures(program string, timeout time.Duration) (Ability, error) {
	if !Kernel(5, 12) { // mount_setattr(2)
		return Ability{}, nil
	}
	out, err := run(program, "features", timeout)
	if err == nil {
		var f features.Features
		if err = json.Unmarshal(out, &f); err == nil {
			return abilityOf(&f), nil
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return Ability{}, err
	}
	out, err = run(program, "--version", timeout)
	return Ability{ReadOnlyTrees: err == nil && newCrun(string(out))}, err
}

func abilityOf(f *features.Features) Ability {
	a := Ability{ReadOnlyTrees: slices.Contains(f.MountOptions, "rro")}
	l := f.Linux
	if l != nil && l.MountExtensions != nil && l.MountExtensions.IDMap != nil && l.MountExtensions.IDMap.Enabled != nil {
		a.Users = *l.MountExtensions.IDMap.Enabled && slices.Contains(l.Namespaces, "user")
	}
	a.Scheduling = isAtLeast(f.Annotations["run.oci.crun.version"], 1, 9) ||
		isAtLeast(f.Annotations["org.opencontainers.runc.version"], 1, 2)
	return a
}

// isAtLeast reports whether a version, such as 1.21, is at least major.minor.
func isAtLeast(version string, major, minor int) bool {
	var a, b int
	n, _ := fmt.Sscanf(version, "%d.%d", &a, &b)
	return n == 2 && (a > major || a == major && b >= minor)
}

const (
	answerTimeout = 10 * time.Second
	retryDelay    = time.Minute
	maxAnswer     = 1 << 20 // maximum size of the output in bytes; runc's has 4 KiB
)

var errTooLong = errors.New("the output is too long")

// run returns the output of a program. It is an error if the output exceeds maxAnswer. The error is
// context.DeadlineExceeded if the program exceeds the timeout.
func run(program, arg string, timeout time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var out limitedBuffer
	cmd := exec.CommandContext(ctx, program, arg)
	cmd.Stdout, cmd.WaitDelay = &out, time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return out.b, err
}

// A limitedBuffer is a buffer of at most maxAnswer bytes. It does not embed bytes.Buffer, whose
// method ReadFrom would bypass Write.
type limitedBuffer struct{ b []byte }

func (a *limitedBuffer) Write(p []byte) (int, error) {
	if len(a.b)+len(p) > maxAnswer {
		return 0, errTooLong // ends the program with SIGPIPE
	}
	a.b = append(a.b, p...)
	return len(p), nil
}

// newCrun reports whether text is the output of --version of crun 1.4 or later.
func newCrun(text string) bool {
	line, _, _ := strings.Cut(text, "\n")
	var major, minor int
	n, _ := fmt.Sscanf(line, "crun version %d.%d", &major, &minor)
	return n == 2 && (major > 1 || major == 1 && minor >= 4)
}

// Kernel reports whether the kernel has at least the given version.
func Kernel(major, minor int) bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	var a, b int
	n, _ := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &a, &b)
	return n == 2 && (a > major || a == major && b >= minor)
}
