package update

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/islet-edge/islet/internal/release"
)

// A Stager gets programs ready.
type Stager struct {
	Dir       string // for what is fetched: the agent's own, made when it is needed
	Program   string // that is installed; without links
	Version   string // of it, and so of this process
	Arch      string // as GOARCH
	Keys      []release.Key
	Threshold int // how many of Keys have to have signed
	Client    *http.Client
	Log       *slog.Logger
}

// A Staged is a program that could take the place of the installed one.
type Staged struct {
	Version string
	Program string // its path
	Sum     string // of the archive, hexadecimal
	// DespitePods: pods do not count in its trial, as a person wants.
	DespitePods bool
}

// Errors of Stage that a caller tells apart.
var (
	ErrOlder  = errors.New("it is not newer than the one that runs")
	ErrFailed = errors.New("it failed its trial, and is tried again only when a person asks")
	ErrKeys   = errors.New("the node trusts no key: edge.update.keys names none")
)

// Tell is told what is being done, and how far that is: bytes, total 0 where that is not
// known. It may be called often, by one goroutine at a time; nil: nobody wants to know.
type Tell func(status string, current, total int64)

func (t Tell) say(status string, current, total int64) {
	if t != nil {
		t(status, current, total)
	}
}

// Stage gets the program ready that an archive has: the absolute path of a file or an https
// URL, beside which is its release (Suffix). Older allows a version that is not newer. What
// goes wrong is said in an error, and nothing is left of it. Of a version that is refused, with
// the sum of its archive, nothing but the release is read; nil: none is.
func (s *Stager) Stage(ctx context.Context, from string, older bool, refused func(version, sum string) bool,
	tell Tell) (*Staged, error) {
	if len(s.Keys) == 0 {
		return nil, ErrKeys
	}
	src, err := newSource(from, s.Client)
	if err != nil {
		return nil, err
	}
	r, err := src.release(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.wanted(r, older); err != nil {
		return nil, fmt.Errorf("%s: %w", short(from), err)
	}
	sum := hex.EncodeToString(r.SHA512[:])
	if refused != nil && refused(r.Version, sum) {
		return nil, fmt.Errorf("%s: version %s: %w", short(from), r.Version, ErrFailed)
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := s.room(r.Size); err != nil {
		return nil, err
	}
	archive := filepath.Join(s.Dir, "archive")
	defer os.Remove(archive)
	if err := src.archive(ctx, r, archive, tell); err != nil {
		return nil, err
	}
	tell.say("unpacking", 0, 0)
	program, err := r.Extract(ctx, archive, filepath.Dir(s.Program), s.fits)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", short(from), err)
	}
	tell.say("testing", 0, 0)
	if err := selfTest(ctx, program, r.Version); err != nil {
		return nil, errors.Join(fmt.Errorf("the program of version %s fails its self-test: %w", r.Version, err), os.Remove(program))
	}
	s.Log.Info("another version of islet is ready to be tried", "version", r.Version, "program", program)
	return &Staged{Version: r.Version, Program: program, Sum: sum}, nil
}

// wanted says whether a release is one for this node.
func (s *Stager) wanted(r *release.Release, older bool) error {
	if err := r.Signed(s.Keys, s.Threshold); err != nil {
		return err
	}
	if r.Arch != s.Arch {
		return fmt.Errorf("it is for %s, this machine is %s", r.Arch, s.Arch)
	}
	if newer, err := Newer(r.Version, s.Version); err != nil {
		return err
	} else if !newer && !older {
		return fmt.Errorf("version %s: %w, %s", r.Version, ErrOlder, s.Version)
	}
	return nil
}

// Newer compares versions as https://semver.org has it.
func Newer(a, b string) (bool, error) {
	x, err := version.ParseSemantic(a)
	if err != nil {
		return false, err
	}
	y, err := version.ParseSemantic(b)
	if err != nil {
		return false, err
	}
	return y.LessThan(x), nil
}

// unpacked is how many times as big as its archive a program is taken to be before the archive
// is fetched. What it needs is known once it is there: see fits.
const unpacked = 4

// A part of what is to be stored.
type part struct {
	dir  string
	need int64          // bytes
	disk *unix.Statfs_t // what dir is on
}

// room says whether there is enough for an archive and its program, also where both are on one
// file system.
func (s *Stager) room(size int64) error {
	return free(part{dir: s.Dir, need: size}, part{dir: filepath.Dir(s.Program), need: unpacked * size})
}

// fits says whether there is enough for a program, now that the archive is there.
func (s *Stager) fits(size int64) error {
	return free(part{dir: filepath.Dir(s.Program), need: size})
}

// free asks what the parts are on whether there is room for all of them at once.
func free(parts ...part) error {
	for i := range parts {
		parts[i].disk = new(unix.Statfs_t)
		if err := unix.Statfs(parts[i].dir, parts[i].disk); err != nil {
			return fmt.Errorf("%s: %w", parts[i].dir, err)
		}
	}
	return enough(parts)
}

// enough says whether there is room for all parts at once.
func enough(parts []part) error {
	for i, p := range parts {
		need := p.need
		for _, earlier := range parts[:i] {
			if shared(earlier.disk, p.disk) {
				need += earlier.need
			}
		}
		if free := int64(p.disk.Bavail) * int64(p.disk.Bsize); free < need {
			return fmt.Errorf("%s has %d MiB free, %d MiB are needed", p.dir, free>>20, need>>20+1)
		}
	}
	return nil
}

// shared says whether two have their room from the same disk. Subvolumes of btrfs, and overlays,
// have an Fsid each, but the same figures. Two disks that are as big and as full by chance are
// taken for one, which asks for too much at worst.
func shared(a, b *unix.Statfs_t) bool {
	return a.Fsid == b.Fsid ||
		a.Type == b.Type && a.Blocks == b.Blocks && a.Bfree == b.Bfree && a.Bavail == b.Bavail && a.Files == b.Files
}

// Tidy removes what earlier tries left behind, but for what is named.
func (s *Stager) Tidy(but ...string) {
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(s.Program), release.Program+"-*.new"))
	for _, file := range append(left, filepath.Join(s.Dir, "archive")) {
		keep := false
		for _, b := range but {
			keep = keep || b == file
		}
		if keep {
			continue
		}
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			s.Log.Warn("what an update left behind cannot be removed", "file", file, "error", err)
		}
	}
}

// SelfTest is the command by which a program is asked whether it can run here.
const SelfTest = "self-test"

// Bounds of a self-test.
const (
	testTime   = 20 * time.Second
	testMemory = 4 << 30 // of addresses, which Go reserves many of
	testOutput = 4 << 10
)

// selfTest runs a program that is not installed yet.
func selfTest(ctx context.Context, program, version string) error {
	ctx, stop := context.WithTimeout(ctx, testTime)
	defer stop()
	var out bounded
	c := exec.CommandContext(ctx, program, SelfTest)
	c.Env, c.Dir = []string{"PATH=" + os.Getenv("PATH")}, "/"
	c.Stdout, c.Stderr = &out, &out
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = time.Second
	if err := c.Start(); err != nil {
		return err
	}
	limit := unix.Rlimit{Cur: testMemory, Max: testMemory}
	if err := unix.Prlimit(c.Process.Pid, unix.RLIMIT_AS, &limit, nil); err != nil && !errors.Is(err, unix.ESRCH) {
		return errors.Join(err, c.Cancel(), c.Wait())
	}
	if err := c.Wait(); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("it did not end within %s", testTime)
		}
		return fmt.Errorf("%w: %s", err, out.String())
	}
	if got := strings.TrimSpace(out.String()); got != Passed(version) {
		return fmt.Errorf("it says %.200q, not %q", got, Passed(version))
	}
	return nil
}

// Passed is what a program of a version says that can run.
func Passed(version string) string { return "islet " + version + " can run here" }

// bounded keeps the beginning of what is written.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), max(0, testOutput-b.Len()))])
	return len(p), nil
}
