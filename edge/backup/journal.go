package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/k3s"
	"github.com/islet-edge/islet/internal/regular"
)

const (
	stagingName = ".restore"      // directory of a staged archive, in the state directory
	planName    = "plan.json"     // in stagingName: the plan, before it is decided
	journalName = k3s.RestoreFile // in the state directory: the plan that must be completed
	maxPlan     = 8 << 20
)

// A plan is a list of renames. It is complete before the first one, so each process can complete it.
type plan struct {
	Moves []move `json:"moves"`
	Links []link `json:"links,omitempty"`
	// Made are directories that did not exist before, outermost first.
	Made []string `json:"made,omitempty"`

	suffix string
	copies [][2]string  // staged files, and the files beside their places
	pulls  []store.Pull // by the node before, of images that stay on the board
}

// A move renames the file From to To, or the file To to Aside.
type move struct {
	From  string `json:"from,omitempty"`
	To    string `json:"to"`
	Aside string `json:"aside,omitempty"`
	// Keep leaves the file at To until a later move replaces it.
	Keep bool `json:"keep,omitempty"`
}

// A link is a symbolic link.
type link struct {
	Path   string `json:"path"`
	Target string `json:"target"`
}

// commit writes the files beside their places, decides, and completes the plan.
func (p *plan) commit(state string, at func(step string) error) error {
	for _, m := range p.Moves {
		p.addMissing(filepath.Dir(m.To))
	}
	staged := filepath.Join(state, stagingName, planName)
	data, err := json.Marshal(p)
	if err == nil && len(data) > maxPlan {
		err = errors.New("the plan of the restore is too large")
	}
	if err == nil {
		err = durable.Write(staged, data, 0o600)
	}
	if err != nil {
		return err
	}
	if err := at("planned"); err != nil {
		return err
	}
	dirs := map[string]bool{filepath.Dir(staged): true, filepath.Join(filepath.Dir(staged), "db"): true, state: true}
	for _, dir := range p.Made { // a wider mode could show files that the node before has protected by the mode of a directory
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		dirs[filepath.Dir(dir)] = true
	}
	for _, c := range p.copies {
		if err := copyFile(c[0], c[1]); err != nil {
			return err
		}
		dirs[filepath.Dir(c[1])] = true
	}
	if err := syncDirs(dirs); err != nil {
		return err
	}
	if err := at("copied"); err != nil {
		return err
	}
	if err := os.Rename(staged, filepath.Join(state, journalName)); err != nil {
		return err
	}
	if err := at("decided"); err != nil {
		return err
	}
	if err := durable.SyncDir(state); err != nil {
		return err
	}
	return p.complete(state, at)
}

// addMissing adds the directories that must be made for a directory.
func (p *plan) addMissing(dir string) {
	if _, err := os.Stat(dir); err == nil || slices.Contains(p.Made, dir) || dir == filepath.Dir(dir) {
		return
	}
	p.addMissing(filepath.Dir(dir))
	p.Made = append(p.Made, dir)
}

// copyFile copies a file durably, with its mode.
func copyFile(from, to string) error {
	in, err := regular.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return writeNew(to, info.Mode().Perm(), info.Size(), in)
}

// complete does the renames of the plan. A part of them may have been done.
func (p *plan) complete(state string, at func(step string) error) error {
	dirs := map[string]bool{state: true}
	for _, m := range p.Moves {
		if err := m.do(); err != nil {
			return incomplete(state, err)
		}
		dirs[filepath.Dir(m.To)] = true
		if err := at("moved"); err != nil {
			return err
		}
	}
	for _, l := range p.Links {
		if err := l.make(); err != nil {
			return incomplete(state, err)
		}
		dirs[filepath.Dir(l.Path)] = true
	}
	if err := syncDirs(dirs); err != nil {
		return err
	}
	if err := at("linked"); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(state, journalName)); err != nil {
		return err
	}
	if err := durable.SyncDir(state); err != nil {
		return err
	}
	if err := at("removed"); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(state, stagingName))
}

func incomplete(state string, err error) error {
	return fmt.Errorf("complete the restore of a backup (%s): %w: remove what prevents this, or rename the file by hand, and start again",
		filepath.Join(state, journalName), err)
}

// check returns an error if a rename of the plan would fail, because after the decision the agent starts only when all are done.
func (p *plan) check() error {
	var errs []error
	for _, m := range p.Moves {
		errs = append(errs, checkLength(m.To), checkMovable(filepath.Dir(m.To), 0))
		if m.Aside == "" {
			continue
		}
		errs = append(errs, checkLength(m.Aside), checkMovable(m.To, unix.STATX_ATTR_MOUNT_ROOT))
		if exists(m.Aside) {
			errs = append(errs, fmt.Errorf("%s is there already, from an earlier restore: move it away", m.Aside))
		}
	}
	for _, l := range p.Links {
		errs = append(errs, checkLength(besidePath(l.Path)), checkMovable(filepath.Dir(l.Path), 0))
	}
	return errors.Join(errs...)
}

// checkLength returns an error if a file system cannot have a file with this name.
func checkLength(path string) error {
	_, err := os.Lstat(path)
	if len(filepath.Base(path)) > unix.NAME_MAX || errors.Is(err, unix.ENAMETOOLONG) {
		return fmt.Errorf("%s has too long a name: rename the file for --set-aside", path)
	}
	return nil
}

// checkMovable returns an error if a file has an attribute that prevents its rename, or if a directory has an attribute that prevents the
// rename of files in it.
func checkMovable(path string, more uint64) error {
	var s unix.Statx_t
	if unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE, &s) != nil {
		return nil
	}
	fixed := s.Attributes&(unix.STATX_ATTR_IMMUTABLE|unix.STATX_ATTR_APPEND|more) != 0
	if fixed || more&unix.STATX_ATTR_MOUNT_ROOT != 0 && isMountPoint(path, &s) {
		return fmt.Errorf("%s is a mount point, immutable or append-only: unmount it (umount), or remove the attribute (chattr -ia)", path)
	}
	return nil
}

// isMountPoint reports whether a file is a mount point. Kernels before 5.8 do not have the attribute.
func isMountPoint(path string, s *unix.Statx_t) bool {
	if s.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return s.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
	}
	if s.Mode&unix.S_IFMT == unix.S_IFLNK { // Mounted would follow the link
		return false
	}
	is, err := mountinfo.Mounted(path)
	return err == nil && is
}

// do does a move. A move whose file is gone was done before.
func (m move) do() error {
	from, to := m.From, m.To
	if m.Aside != "" {
		from, to = m.To, m.Aside
	}
	if m.Aside != "" && exists(to) { // what is at To now is a new file
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil { // a directory of this name may have been set aside
		return err
	}
	if m.Keep && os.Link(from, to) == nil {
		return nil
	}
	if err := os.Rename(from, to); !errors.Is(err, fs.ErrNotExist) { // also if the file system has no hard links
		return err
	}
	return nil
}

func (l link) make() error {
	next := besidePath(l.Path)
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(l.Target, next); err != nil {
		return err
	}
	return os.Rename(next, l.Path)
}

// Pending reports whether a restore was interrupted in this state directory.
func Pending(state string) bool { return IsDecided(state) || exists(filepath.Join(state, stagingName)) }

// IsDecided reports whether a restore was interrupted that must be completed.
func IsDecided(state string) bool { return exists(filepath.Join(state, journalName)) }

// Recover ends an interrupted restore: it completes a restore that was decided, and removes any other one. The caller has locked the state
// directory.
func Recover(state string) error { return recoverDirs(state, func(string) error { return nil }) }

func recoverDirs(state string, at func(step string) error) error {
	p, err := readPlan(filepath.Join(state, journalName))
	if err != nil {
		return err
	}
	if p != nil {
		return p.complete(state, at)
	}
	staging := filepath.Join(state, stagingName)
	p, err = readPlan(filepath.Join(staging, planName))
	if err != nil {
		return err
	}
	if p != nil {
		p.removeCopies()
	}
	return os.RemoveAll(staging)
}

// removeCopies removes the files and directories that commit has made.
func (p *plan) removeCopies() {
	for _, m := range p.Moves {
		if m.From == besidePath(m.To) {
			_ = os.Remove(m.From)
		}
	}
	for _, dir := range slices.Backward(p.Made) {
		_ = os.Remove(dir) // fails if somebody else has put a file there
	}
}

// readPlan returns a plan, or nil if there is none.
func readPlan(path string) (*plan, error) {
	data, err := regular.Read(path, maxPlan)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var p plan
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	if err != nil {
		return nil, fmt.Errorf("the record of an interrupted restore of a backup: %w", err)
	}
	return &p, nil
}
