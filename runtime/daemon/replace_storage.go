package daemon

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/bootid"
	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/printable"
	"github.com/islet-edge/islet/internal/readonly"
	"github.com/islet-edge/islet/internal/regular"
	"github.com/islet-edge/islet/runtime/mounts"
)

const (
	metaFile     = "meta.db"     // containerd's database
	namesFile    = "metadata.db" // the snapshotter's database
	snapshotsDir = "snapshots"   // the snapshotter's directory of layers

	asideSuffix = ".corrupt-"
	usersSuffix = ".containers" // of the list of containers that may use layers that were set aside
	beginFile   = "replacing"   // has the message about a replacement until it is complete
	markerFile  = "replaced"    // has the message about a complete replacement until ForgetDamage

	// keepAside is the number of damaged databases that are kept, as for islet.db.
	keepAside = 3
	// maxUsers is the maximum size of a list of containers, in bytes.
	maxUsers = 1 << 20
	// maxMessage is the maximum size of the message about a replacement, in bytes.
	maxMessage = 4 << 10
	// maxMountTable is the maximum size of the mount table of a process, in bytes.
	maxMountTable = 16 << 20
)

// errInUse is the error for a database that another process has locked.
var errInUse = errors.New("another process uses the database")

// A storage is the part of containerd's storage that is replaced as a whole, because its parts refer to each other: two databases, and the
// directory of layers. The content of blobs is kept: its names are digests.
type storage struct {
	root       string // of containerd
	dir        string // of the snapshotter
	containers string // has a directory for each container
}

// setAsideDamaged checks the databases and renames the storage if bbolt cannot open one of them, or if one of them is lost. It returns a
// message for the administrator, or "" if the databases are intact or in use by another process. Later calls return the message too, until
// forgetDamage. The layers that were renamed remain for the running containers: see removeUnused.
func (s storage) setAsideDamaged() (message string, err error) {
	meta := filepath.Join(s.root, metaFile)
	names := filepath.Join(s.dir, namesFile)
	message, begun := readMessage(s.marker()), readMessage(s.beginMarker())
	bad, f := meta, (*os.File)(nil)
	why := checkLocked(meta, regular.Open, &f)
	defer func() { f.Close() }() // also unlocks the file; nil is valid
	lost := isLost(why) && (exists(names) || s.hasLayers() || begun != "")
	if why == nil {
		var g *os.File
		bad, why = names, checkLocked(names, regular.Open, &g)
		g.Close()
		lost = isLost(why) && s.hasLayers()
		if errors.Is(why, errNoRecords) { // a process that dies while it creates the first layer leaves one: see renameLeftovers
			lost = len(listNumbers(filepath.Join(s.dir, snapshotsDir))) > 1
		}
	}
	if !lost && !errors.Is(why, errDamaged) {
		if begun != "" && (why == nil || isLost(why)) {
			_ = os.Remove(s.beginMarker()) // meta.db is renamed first, and is there: nothing was replaced
		}
		return message, nil // bolt.Open reports the other errors
	}
	suffix := s.newSuffix()
	if message = begun; message == "" || !lost { // otherwise an interrupted replacement continues
		message = printable.Cut(fmt.Sprintf("%s could not be used: %s. The records of all images were lost, and the damaged files are "+
			"kept with the suffix %s. Images are imported from their archives and pulled again", bad, describe(why), suffix), maxMessage/2)
	}
	err = durable.Write(s.beginMarker(), []byte(message), 0o600)
	if errors.Is(err, unix.ENOSPC) { // an empty file needs no block
		err = durable.Write(s.beginMarker(), nil, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("%s cannot be used (%w), and its replacement cannot be recorded: %w", bad, why, err)
	}
	if err := s.setAside(suffix); err != nil {
		return "", fmt.Errorf("%s cannot be used (%w) and cannot be renamed: %w", bad, why, err)
	}
	if err := errors.Join(os.Rename(s.beginMarker(), s.marker()), durable.SyncDir(s.root)); err != nil {
		return "", fmt.Errorf("%s cannot be used (%w), and its replacement cannot be recorded: %w", bad, why, err)
	}
	return message, nil
}

// isLost reports whether a database is missing or empty, or was so when an earlier version of islet started. bbolt creates one. Without the
// records of meta.db, the garbage collector would remove the layers of running containers. Without the records of metadata.db, new layers
// would get the numbers of old ones.
func isLost(why error) bool {
	return errors.Is(why, fs.ErrNotExist) || errors.Is(why, errEmpty) || errors.Is(why, errNoRecords)
}

func describe(why error) string {
	if errors.Is(why, fs.ErrNotExist) {
		return "it is missing"
	}
	return strings.TrimPrefix(why.Error(), errDamaged.Error()+": ")
}

// hasLayers reports whether there are layers. A node that has never unpacked an image has none. A directory that cannot be read may have
// layers.
func (s storage) hasLayers() bool {
	layers := filepath.Join(s.dir, snapshotsDir)
	_, err := os.ReadDir(layers)
	return err != nil && !errors.Is(err, fs.ErrNotExist) || len(listNumbers(layers)) > 0
}

func (s storage) marker() string { return filepath.Join(s.root, markerFile) }

func (s storage) beginMarker() string { return filepath.Join(s.root, beginFile) }

// readMessage returns the message of a file about a replacement, or "" if the file does not exist.
func readMessage(path string) string {
	message, err := regular.Read(path, maxMessage)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil || len(message) == 0 {
		return "The storage of images was damaged and has been replaced. Images are imported from their archives and pulled again"
	}
	return printable.Cut(string(message), maxMessage)
}

// forgetDamage removes the message about a replacement.
func (s storage) forgetDamage() error {
	err := os.Remove(s.marker())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, durable.SyncDir(s.root))
}

// checkLocked opens, locks and checks a database. The file is open if the lock was taken. A disk fault counts as damage if it occurs again.
func checkLocked(path string, open func(path string) (*os.File, error), f **os.File) error {
	attempts := 0
	err := readonly.TryTwice(func() (err error) {
		attempts++
		defer func() {
			if attempts == 1 && readonly.IsDiskFault(err) {
				(*f).Close() // now, because a child that is being started has the lock too until it executes its program; nil is valid
			}
		}()
		if *f, err = open(path); err != nil {
			return err
		}
		if err = unix.Flock(int((*f).Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
			return errInUse
		}
		if err == nil {
			err = checkBolt(*f)
		}
		return err
	})
	if readonly.IsDiskFault(err) && !errors.Is(err, errDamaged) {
		err = damaged("%w", err)
	}
	return err
}

// newSuffix returns a suffix for the names of files that are set aside now.
func (s storage) newSuffix() string {
	suffix := asideSuffix + time.Now().UTC().Format("20060102T150405Z")
	layers := filepath.Join(s.dir, snapshotsDir)
	for base, n := suffix, 1; exists(layers+suffix+bootSuffix()) || exists(filepath.Join(s.root, metaFile+suffix)); n++ {
		suffix = fmt.Sprintf("%s.%d", base, n) // the clock may stand still
	}
	return suffix
}

// setAside renames the databases and the layers. The layers are renamed last: as long as they have their name, setAsideDamaged finds that
// the databases are lost, so an interrupted replacement continues with the next start.
func (s storage) setAside(suffix string) error {
	for _, path := range []string{filepath.Join(s.root, metaFile), filepath.Join(s.dir, namesFile)} {
		err := os.Rename(path, path+suffix)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			err = os.Remove(path) // an overlay cannot rename a file of a lower layer that cannot be read
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := durable.SyncDir(filepath.Dir(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		prune(path, path+suffix)
	}
	layers := filepath.Join(s.dir, snapshotsDir)
	if !exists(layers) {
		return nil
	}
	aside := layers + suffix + bootSuffix()
	_ = durable.Write(aside+usersSuffix, s.listUsers(), 0o600) // fails on a full disk: see isUsed
	if err := os.Rename(layers, aside); err != nil {
		return err
	}
	return durable.SyncDir(s.dir)
}

// prune removes old copies of a damaged database. The newest copy is kept in any case, because the clock may be wrong.
func prune(path, newest string) {
	all := listPrefix(path + asideSuffix)
	all = slices.DeleteFunc(all, func(name string) bool { return name == newest })
	for _, name := range all[:max(0, len(all)-keepAside+1)] {
		_ = os.Remove(name) // the next replacement tries again
	}
}

// bootSuffix returns the end of the names of layers that are set aside during this boot. No container uses them in a later boot.
func bootSuffix() string { return "." + bootid.Read() }

// listUsers returns the names of the containers with a running process, one a line. If it cannot find them, it returns all containers.
func (s storage) listUsers() []byte {
	entries, err := os.ReadDir(s.containers)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return []byte(".") // always exists: the layers are kept until the next boot
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if running, err := findMounted("/proc", slices.Clone(names)); err == nil {
		names = running
	}
	return []byte(strings.Join(names, "\n"))
}

// findMounted returns those names that are a part of a path in the mount table of any process. The root file system of a container has the
// path of the container's directory among its mount options, and only the container's processes see it. The directory proc is /proc. If the
// mount table of a running process cannot be read, findMounted returns an error.
func findMounted(proc string, names []string) (found []string, err error) {
	processes, err := os.ReadDir(proc)
	if err != nil {
		return nil, err
	}
	read := map[[2]string]bool{} // mount namespaces, and root directories in them: a table has only the mounts below the root
	for _, p := range processes {
		dir := filepath.Join(proc, p.Name())
		if pid, err := strconv.ParseUint(p.Name(), 10, 64); err != nil || pid == 1 {
			continue // not a process of a container; if the agent runs in a container, it may not examine init
		}
		namespace, err := os.Readlink(filepath.Join(dir, "ns/mnt"))
		root, rootErr := os.Readlink(filepath.Join(dir, "root"))
		if err = cmp.Or(err, rootErr); hasEnded(err) || read[[2]string{namespace, root}] {
			continue
		}
		if err != nil {
			return nil, err
		}
		table, err := regular.Read(filepath.Join(dir, "mountinfo"), maxMountTable)
		if hasEnded(err) || errors.Is(err, unix.EINVAL) { // EINVAL: it is ending
			continue
		}
		if err != nil {
			return nil, err
		}
		read[[2]string{namespace, root}] = true
		names = slices.DeleteFunc(names, func(name string) bool {
			mounted := bytes.Contains(table, []byte("/"+name+"/"))
			if mounted {
				found = append(found, name)
			}
			return mounted
		})
	}
	return found, nil
}

// hasEnded reports whether an error of a file in /proc means that the process has ended.
func hasEnded(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// isUsed reports whether a container may still use layers that were set aside: during this boot, until all containers that ran at that
// time are removed. If there is no list of them, the layers are kept until the next boot.
func (s storage) isUsed(layers string) bool {
	if !strings.HasSuffix(layers, bootSuffix()) {
		return false
	}
	names, err := regular.Read(layers+usersSuffix, maxUsers)
	if err != nil {
		return true
	}
	return slices.ContainsFunc(strings.Split(string(names), "\n"), func(name string) bool {
		return name != "" && !isMissing(filepath.Join(s.containers, name))
	})
}

// removeUnused removes the layers that were set aside and that no container uses any more. It stops between two layers if stop is closed.
func (s storage) removeUnused(stop <-chan struct{}) error {
	var errs []error
	for _, path := range s.listAside() {
		layers, isList := strings.CutSuffix(path, usersSuffix)
		if isList {
			if isMissing(layers) {
				errs = append(errs, mounts.RemoveAll(path))
			}
			continue
		}
		if s.isUsed(layers) {
			continue
		}
		entries, err := os.ReadDir(layers)
		errs = append(errs, err)
		for _, e := range entries {
			select {
			case <-stop:
				return nil
			default:
			}
			errs = append(errs, mounts.RemoveAll(filepath.Join(layers, e.Name())))
		}
		if err = mounts.RemoveAll(layers); err == nil { // otherwise the next attempt needs the list
			err = mounts.RemoveAll(layers + usersSuffix)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// listAside returns the directories of layers that were set aside, and the lists of their containers.
func (s storage) listAside() []string {
	return listPrefix(filepath.Join(s.dir, snapshotsDir) + asideSuffix)
}

// listPrefix returns the paths that begin with a path, sorted.
func listPrefix(path string) (all []string) {
	dir, prefix := filepath.Split(path)
	entries, _ := os.ReadDir(dir) // with an error, the entries that could be read
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			all = append(all, filepath.Join(dir, e.Name()))
		}
	}
	return all
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// isMissing reports whether a path does not exist. If the disk cannot read it, it may exist.
func isMissing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}
