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

// An Ability lists the optional features that an OCI runtime supports on this kernel.
type Ability struct {
	// ReadOnlyTrees reports support for recursive read-only mounts (KEP-3857).
	ReadOnlyTrees bool
	// Users reports support for user namespaces with idmapped volumes (KEP-127). The file systems
	// of images and volumes must support idmapped mounts too, which is checked elsewhere.
	Users bool
}

// Cache caches the abilities of programs. The zero value is ready to use.
type Cache struct {
	mu    sync.Mutex
	known map[string]known

	patience time.Duration // how long to wait for a program; answerTimeout if it is 0
}

type known struct {
	size    int64
	changed time.Time
	until   time.Time // when to run the program again; if it is zero, when its file changes
	Ability
}

// Get returns the abilities of a program. It runs the program once per version of its file. If the
// program did not respond in time, it is run again after a minute, because the machine may have
// been overloaded. A missing program has no abilities.
func (k *Cache) Get(program string) Ability {
	st, err := os.Stat(program)
	if err != nil {
		return Ability{}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	is, ok := k.known[program]
	fresh := is.until.IsZero() || !time.Now().After(is.until)
	if !ok || is.size != st.Size() || !is.changed.Equal(st.ModTime()) || !fresh {
		is = known{size: st.Size(), changed: st.ModTime()}
		var err error
		if is.Ability, err = readFeatures(program, cmp.Or(k.patience, answerTimeout)); errors.Is(err, context.DeadlineExceeded) {
			is.until = time.Now().Add(askAgain)
		}
		if k.known == nil {
			k.known = map[string]known{}
		}
		k.known[program] = is
	}
	return is.Ability
}

// readFeatures runs `PROGRAM features`. A program without that command has no abilities. Only crun is
// checked by its version, because it supported recursive read-only mounts before it had the
// command. The error is context.DeadlineExceeded if the program does not respond in time.
func readFeatures(program string, patience time.Duration) (Ability, error) {
	if !Kernel(5, 12) { // mount_setattr(2)
		return Ability{}, nil
	}
	out, err := run(program, "features", patience)
	if err == nil {
		var f features.Features
		if err = json.Unmarshal(out, &f); err == nil {
			return abilityOf(&f), nil
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return Ability{}, err
	}
	out, err = run(program, "--version", patience)
	return Ability{ReadOnlyTrees: err == nil && newCrun(string(out))}, err
}

func abilityOf(f *features.Features) Ability {
	a := Ability{ReadOnlyTrees: slices.Contains(f.MountOptions, "rro")}
	l := f.Linux
	if l != nil && l.MountExtensions != nil && l.MountExtensions.IDMap != nil && l.MountExtensions.IDMap.Enabled != nil {
		a.Users = *l.MountExtensions.IDMap.Enabled && slices.Contains(l.Namespaces, "user")
	}
	return a
}

const (
	answerTimeout = 10 * time.Second
	askAgain      = time.Minute
	maxAnswer     = 1 << 20 // in bytes; the output of runc has 4 KiB
)

var errTooLong = errors.New("the output is too long")

// run returns the output of a program, of at most maxAnswer bytes. The error is
// context.DeadlineExceeded if the program takes too long.
func run(program, arg string, patience time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
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

// A limitedBuffer is a buffer of at most maxAnswer bytes. It is no bytes.Buffer, because that
// type's ReadFrom method would bypass Write.
type limitedBuffer struct{ b []byte }

func (a *limitedBuffer) Write(p []byte) (int, error) {
	if len(a.b)+len(p) > maxAnswer {
		return 0, errTooLong // the program then gets SIGPIPE
	}
	a.b = append(a.b, p...)
	return len(p), nil
}

// newCrun reports whether this output of --version is from crun 1.4 or later.
func newCrun(text string) bool {
	line, _, _ := strings.Cut(text, "\n")
	var major, minor int
	n, _ := fmt.Sscanf(line, "crun version %d.%d", &major, &minor)
	return n == 2 && (major > 1 || major == 1 && minor >= 4)
}

// Kernel reports whether the kernel has at least this version.
func Kernel(major, minor int) bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	var a, b int
	n, _ := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &a, &b)
	return n == 2 && (a > major || a == major && b >= minor)
}
