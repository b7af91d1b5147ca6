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

// An Ability is what an OCI runtime can do on this kernel, beyond what all of them can.
type Ability struct {
	// ReadOnlyTrees: mounts that are read-only with all below them (KEP-3857).
	ReadOnlyTrees bool
	// Users: user namespaces with volumes whose owners are shifted into them (KEP-127).
	// What the file systems of images and volumes can is another matter.
	Users bool
}

// Known remembers what programs said. The zero value is ready.
type Known struct {
	mu    sync.Mutex
	known map[string]known

	patience time.Duration // with a program's answer; 0: answerTime
}

type known struct {
	size    int64
	changed time.Time
	until   time.Time // what is known counts; zero: as long as it is the same file
	Ability
}

// Of asks a program at most once as long as it is the same file, but again after a minute one that
// did not answer in time: the machine may have had none for it. A program that is not there can do
// nothing.
func (k *Known) Of(program string) Ability {
	st, err := os.Stat(program)
	if err != nil {
		return Ability{}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	is, ok := k.known[program]
	if !ok || is.size != st.Size() || !is.changed.Equal(st.ModTime()) || !is.until.IsZero() && time.Now().After(is.until) {
		is = known{size: st.Size(), changed: st.ModTime()}
		var err error
		if is.Ability, err = ask(program, cmp.Or(k.patience, answerTime)); errors.Is(err, context.DeadlineExceeded) {
			is.until = time.Now().Add(askAgain)
		}
		if k.known == nil {
			k.known = map[string]known{}
		}
		k.known[program] = is
	}
	return is.Ability
}

// ask runs `PROGRAM features`. What does not answer can do nothing special, but for
// crun: it had recursive read-only mounts before it had the command. The error is
// context.DeadlineExceeded where it may have more to say.
func ask(program string, patience time.Duration) (Ability, error) {
	if !Kernel(5, 12) { // mount_setattr(2)
		return Ability{}, nil
	}
	out, err := run(program, "features", patience)
	if err == nil {
		var f features.Features
		if err = json.Unmarshal(out, &f); err == nil {
			return of(&f), nil
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return Ability{}, err
	}
	out, err = run(program, "--version", patience)
	return Ability{ReadOnlyTrees: err == nil && newCrun(string(out))}, err
}

func of(f *features.Features) Ability {
	a := Ability{ReadOnlyTrees: slices.Contains(f.MountOptions, "rro")}
	if l := f.Linux; l != nil && l.MountExtensions != nil && l.MountExtensions.IDMap != nil && l.MountExtensions.IDMap.Enabled != nil {
		a.Users = *l.MountExtensions.IDMap.Enabled && slices.Contains(l.Namespaces, "user")
	}
	return a
}

const (
	answerTime = 10 * time.Second
	askAgain   = time.Minute
	maxAnswer  = 1 << 20 // bytes; runc's has 4 KiB
)

var errTooLong = errors.New("the answer is too long")

// run returns what a program prints, as long as that is bounded: context.DeadlineExceeded is
// of one that took too long.
func run(program, arg string, patience time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var out answer
	cmd := exec.CommandContext(ctx, program, arg)
	cmd.Stdout, cmd.WaitDelay = &out, time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return out.b, err
}

// An answer takes no more than maxAnswer. (A bytes.Buffer would read by itself.)
type answer struct{ b []byte }

func (a *answer) Write(p []byte) (int, error) {
	if len(a.b)+len(p) > maxAnswer {
		return 0, errTooLong // which ends the program with SIGPIPE
	}
	a.b = append(a.b, p...)
	return len(p), nil
}

// newCrun says whether the text of --version is that of crun 1.4 or later.
func newCrun(text string) bool {
	line, _, _ := strings.Cut(text, "\n")
	var major, minor int
	n, _ := fmt.Sscanf(line, "crun version %d.%d", &major, &minor)
	return n == 2 && (major > 1 || major == 1 && minor >= 4)
}

// Kernel says whether the kernel is of this version or later.
func Kernel(major, minor int) bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	var a, b int
	n, _ := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &a, &b)
	return n == 2 && (a > major || a == major && b >= minor)
}
