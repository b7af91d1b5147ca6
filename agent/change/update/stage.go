package update

import (
	"bytes"
	"cmp"
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

	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/internal/capped"
	"github.com/islet-edge/islet/internal/release"
	"github.com/islet-edge/islet/runtime/mounts"
)

// A Stager prepares programs for a trial.
type Stager struct {
	Dir       string // for fetched archives; the agent owns it and creates it when needed
	Program   string // path of the installed program, without symbolic links
	Version   string // of the installed program and of this process
	Arch      string // in the format of GOARCH
	Keys      []release.Key
	Threshold int // number of keys in Keys that must have signed a release
	Client    *http.Client
	Log       *slog.Logger

	testTime time.Duration // replaces the constant of this name in tests
}

// A StagedProgram is a program that is ready for a trial.
type StagedProgram struct {
	Version string
	Program string // its path
	Sum     string // checksum of the archive, hexadecimal
	// DespitePods is set if the operator requested that the trial ignores pods.
	DespitePods bool
	Bundled     bool // the archive came with a bundle
}

// Errors of Stage.
var (
	ErrOlder  = errors.New("it is not newer than the running version")
	ErrFailed = errors.New("it has failed, or an operator has returned from it: it is only tried again on an operator's request")
	ErrKeys   = errors.New("the node trusts no key: edge.update.keys is empty")
)

// Progress is called with the current step, the number of bytes done so far, and the total number. A total of 0 means
// that it is unknown. Progress may be called often, by one goroutine at a time. It may be nil.
type Progress func(status string, current, total int64)

func (t Progress) report(status string, current, total int64) {
	if t != nil {
		t(status, current, total)
	}
}

// Stage prepares the program in an archive for a trial. The archive is given by its absolute path or its https URL.
// The release must be next to the archive: see Suffix. If older is true, the version need not be newer than the
// running one. Stage first checks the release. It then calls the function refused, which may be nil, with the version
// and the checksum of the archive. If this function returns true, Stage returns ErrFailed. If Stage fails, it removes
// all files that it has created.
func (s *Stager) Stage(ctx context.Context, from string, older bool, refused func(version, sum string) bool,
	tell Progress) (*StagedProgram, error) {
	if len(s.Keys) == 0 {
		return nil, ErrKeys
	}
	src, err := newSource(from, s.Client)
	if err != nil {
		return nil, err
	}
	return s.stage(ctx, src, older, refused, tell)
}

// stage implements Stage.
func (s *Stager) stage(ctx context.Context, src *source, older bool, refused func(version, sum string) bool,
	tell Progress) (*StagedProgram, error) {
	r, err := s.acceptRelease(ctx, src, older, refused)
	if err != nil {
		return nil, err
	}
	sum := hex.EncodeToString(r.SHA512[:])
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := s.checkSpace(r.Size); err != nil {
		return nil, err
	}
	archive := filepath.Join(s.Dir, "archive")
	defer os.Remove(archive)
	if err := src.fetchArchive(ctx, r, archive, tell); err != nil {
		return nil, err
	}
	tell.report("unpacking", 0, 0)
	hadSpace := true
	program, err := r.Extract(ctx, archive, filepath.Dir(s.Program), func(size int64) error {
		err := s.checkProgramSpace(size)
		hadSpace = err == nil
		return err
	})
	if err != nil {
		err = fmt.Errorf("%s: %w", src, err)
		if hadSpace && ctx.Err() == nil && !errors.As(err, new(syscall.Errno)) {
			err = untriedError{err, r.Version, sum, trial.Unfit}
		}
		return nil, err
	}
	tell.report("testing", 0, 0)
	if err := s.test(ctx, program, r.Version, sum); err != nil {
		return nil, err
	}
	s.Log.Info("another version of islet is ready to be tried", "version", r.Version, "program", program)
	return &StagedProgram{Version: r.Version, Program: program, Sum: sum}, nil
}

// An untriedError means that the program of a signed archive has failed before its trial.
type untriedError struct {
	error
	version string
	sum     string // of the archive
	how     trial.Untried
}

func (e untriedError) Unwrap() error { return e.error }

// test runs the self-test of a staged program. After a failure it removes the program. The error is an untriedError, unless ctx has ended.
func (s *Stager) test(ctx context.Context, program, version, sum string) error {
	how, err := s.selfTest(ctx, program, version)
	if err == nil {
		return nil
	}
	err = errors.Join(fmt.Errorf("the program of version %s fails its self-test: %w", version, err), os.Remove(program))
	if ctx.Err() == nil {
		err = untriedError{err, version, sum, how}
	}
	return err
}

// acceptRelease reads a release, and returns an error if its archive must not be staged.
func (s *Stager) acceptRelease(ctx context.Context, src *source, older bool, refused func(version, sum string) bool) (
	*release.Release, error) {
	if len(s.Keys) == 0 {
		return nil, ErrKeys
	}
	r, err := src.readRelease(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.checkRelease(r, older); err != nil {
		return nil, fmt.Errorf("%s: %w", src, err)
	}
	if a := src.archive; a != nil && a.Size != r.Size {
		return nil, fmt.Errorf("%s: the archive has %d bytes, the release says %d", src, a.Size, r.Size)
	}
	if err := src.indexed.check(r); err != nil {
		return nil, fmt.Errorf("%s: %w", src, err)
	}
	if refused != nil && refused(r.Version, hex.EncodeToString(r.SHA512[:])) {
		return nil, fmt.Errorf("%s: version %s: %w", src, r.Version, ErrFailed)
	}
	return r, nil
}

// checkRelease returns an error if a release has too few valid signatures, is for another architecture, or is not
// newer.
func (s *Stager) checkRelease(r *release.Release, older bool) error {
	if err := r.VerifySignatures(s.Keys, s.Threshold); err != nil {
		return err
	}
	if r.Arch != s.Arch {
		return fmt.Errorf("it is for %s, but this machine is %s", r.Arch, s.Arch)
	}
	if newer, err := IsNewer(r.Version, s.Version); err != nil {
		return err
	} else if !newer && !older {
		return fmt.Errorf("version %s: %w, %s", r.Version, ErrOlder, s.Version)
	}
	return nil
}

// IsNewer is release.IsNewer.
func IsNewer(a, b string) (bool, error) { return release.IsNewer(a, b) }

// unpackedFactor is the assumed ratio of a program's size to its archive's size. It is used for the check of the disk
// space before the fetch. Afterwards the actual size is checked: see checkProgramSpace.
const unpackedFactor = 4

// A part is a file for which the disk must have space.
type part struct {
	dir  string
	need int64          // bytes
	disk *unix.Statfs_t // free space of the file system of dir
}

// checkSpace returns an error if there is not enough space for an archive and its program. The archive and the program
// may be on the same file system.
func (s *Stager) checkSpace(size int64) error {
	return checkParts(part{dir: s.Dir, need: size}, part{dir: filepath.Dir(s.Program), need: unpackedFactor * size})
}

// checkProgramSpace returns an error if there is not enough space for a program whose archive was fetched.
func (s *Stager) checkProgramSpace(size int64) error {
	return checkParts(part{dir: filepath.Dir(s.Program), need: size})
}

// checkParts returns an error if there is not enough space for the parts.
func checkParts(parts ...part) error {
	for i := range parts {
		parts[i].disk = new(unix.Statfs_t)
		if err := unix.Statfs(parts[i].dir, parts[i].disk); err != nil {
			return fmt.Errorf("%s: %w", parts[i].dir, err)
		}
	}
	return checkDisks(parts)
}

// checkDisks does the work of checkParts. The field disk of each part must be set.
func checkDisks(parts []part) error {
	for i, p := range parts {
		need := p.need
		for _, earlier := range parts[:i] {
			if sameDisk(earlier.disk, p.disk) {
				need += earlier.need
			}
		}
		if free := int64(p.disk.Bavail) * int64(p.disk.Bsize); free < need {
			return fmt.Errorf("%s has %d MiB free, but %d MiB are needed", p.dir, free>>20, need>>20+1)
		}
	}
	return nil
}

// sameDisk reports whether two file systems share their free space. The subvolumes of a btrfs, and overlays on one
// disk, have different Fsids but the same sizes. Two disks that have the same sizes by chance are treated as one. The
// check then only requires more space than necessary.
func sameDisk(a, b *unix.Statfs_t) bool {
	return a.Fsid == b.Fsid ||
		a.Type == b.Type && a.Blocks == b.Blocks && a.Bfree == b.Bfree && a.Bavail == b.Bavail && a.Files == b.Files
}

// RemoveOld removes the files of earlier updates, except the named ones.
func (s *Stager) RemoveOld(but ...string) {
	_ = mounts.RemoveAll(s.testDir()) // after an error, the next self-test removes it
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
			s.Log.Warn("a leftover file of an update cannot be removed", "file", file, "error", err)
		}
	}
}

// SelfTest is the command that tests whether a program can run on this machine.
const SelfTest = "self-test"

// Limits of a self-test.
const (
	testTime   = 20 * time.Second
	testMemory = 4 << 30 // address space, of which Go reserves a large amount
	testOutput = 4 << 10
)

// UnfitExit is the exit code of a self-test whose program does not fit this machine or its configuration.
const UnfitExit = 78

// testDir returns the directory for the temporary files of a self-test. No other user can fill it.
func (s *Stager) testDir() string { return filepath.Join(s.Dir, "self-test") }

// selfTest runs the self-test of a program that is not installed yet, and returns how the program has failed. The result is trial.Unfit if
// the program has another version, is not a program for this machine, or ends with UnfitExit.
func (s *Stager) selfTest(ctx context.Context, program, version string) (trial.Untried, error) {
	tmp := s.testDir()
	if err := errors.Join(mounts.RemoveAll(tmp), os.MkdirAll(tmp, 0o700)); err != nil {
		return trial.Unknown, err
	}
	defer mounts.RemoveAll(tmp) // after an error, RemoveOld removes it
	limitedTime, stop := context.WithTimeout(ctx, cmp.Or(s.testTime, testTime))
	defer stop()
	out := &capped.Buffer{Max: testOutput}
	c := exec.CommandContext(limitedTime, program, SelfTest)
	c.Env, c.Dir = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + tmp}, "/"
	c.Stdout, c.Stderr = out, out
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = time.Second
	switch err := c.Start(); {
	case err == nil:
	case errors.Is(err, syscall.ENOEXEC):
		return trial.Unfit, err
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return trial.Late, errLate
	default:
		return trial.Unknown, err
	}
	limit := unix.Rlimit{Cur: testMemory, Max: testMemory}
	if err := unix.Prlimit(c.Process.Pid, unix.RLIMIT_AS, &limit, nil); err != nil && !errors.Is(err, unix.ESRCH) {
		return trial.Unknown, errors.Join(err, c.Cancel(), c.Wait())
	}
	if err := c.Wait(); err != nil {
		how := failureOf(c.ProcessState, out.Bytes())
		if limitedTime.Err() != nil && ctx.Err() == nil {
			how, err = trial.Late, errLate
		}
		return how, fmt.Errorf("%w: %s", err, out.String())
	}
	if got := strings.TrimSpace(out.String()); got != SelfTestOutput(version) {
		return trial.Unfit, fmt.Errorf("its output is %.200q, not %q", got, SelfTestOutput(version))
	}
	return "", nil
}

// failureOf returns how a self-test has failed. On a machine without free memory or disk space, a good program ends with the exit code of
// an error, or is killed. Without memory or threads for the Go runtime, a good program ends with the exit code of a panic.
func failureOf(s *os.ProcessState, output []byte) trial.Untried {
	status, _ := s.Sys().(syscall.WaitStatus)
	switch code := s.ExitCode(); {
	case code == UnfitExit:
		return trial.Unfit
	case lacks(output):
		return trial.Unknown
	case code > 1: // such as the exit code of a panic
		return trial.Crashed
	}
	switch status.Signal() {
	case syscall.SIGSEGV, syscall.SIGILL, syscall.SIGABRT, syscall.SIGFPE, syscall.SIGTRAP, syscall.SIGSYS:
		return trial.Crashed
	}
	return trial.Unknown
}

// lacks reports whether the output of a program says that the machine has no memory, threads or file descriptors for it.
func lacks(output []byte) bool {
	for _, text := range []string{"out of memory", "cannot allocate memory", "failed to create new OS thread", "netpollinit failed"} {
		if bytes.Contains(output, []byte(text)) {
			return true
		}
	}
	return false
}

// errLate means that a self-test was killed at the end of its time.
var errLate = fmt.Errorf("it did not end within %s", testTime)

// SelfTestOutput returns the output of a successful self-test. Other versions of islet compare their output with it.
func SelfTestOutput(version string) string { return "islet " + version + " can run here" }
