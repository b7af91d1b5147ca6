package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/bootid"
	"github.com/islet-edge/islet/internal/durable"
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

	// keepAside is the number of damaged databases that are kept, as for islet.db.
	keepAside = 3
	// maxUsers is the maximum size of a list of containers, in bytes.
	maxUsers = 1 << 20
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

// setAsideDamaged checks the databases and renames the storage if bbolt cannot open one of them. It returns a message for the
// administrator, or "" if the databases are intact or in use by another process. The layers that were renamed remain for the running
// containers: see removeUnused.
func (s storage) setAsideDamaged() (message string, err error) {
	meta := filepath.Join(s.root, metaFile)
	names := filepath.Join(s.dir, namesFile)
	bad, f, err := meta, (*os.File)(nil), error(nil)
	why := checkLocked(meta, &f)
	defer func() { f.Close() }() // also unlocks the file; nil is valid
	switch {
	case errors.Is(why, fs.ErrNotExist):
		if !exists(names) {
			return "", nil // a new node
		}
		why = damaged("it is missing") // without it, the garbage collector would remove the layers of running containers
	case why == nil:
		var g *os.File
		bad, why = names, checkLocked(names, &g)
		g.Close()
	}
	if why == nil || !errors.Is(why, errDamaged) {
		return "", nil // bolt.Open reports the other errors
	}
	at, err := s.setAside()
	if err != nil {
		return "", fmt.Errorf("%s cannot be used (%w) and cannot be renamed: %w", bad, why, err)
	}
	return fmt.Sprintf("%s could not be used: %s. The records of all images were lost, and the damaged files are kept with the suffix %s. "+
		"Images are imported from their archives and pulled again", bad, strings.TrimPrefix(why.Error(), errDamaged.Error()+": "), at), nil
}

// checkLocked opens, locks and checks a database. The file is open if the lock was taken. A disk fault counts as damage.
func checkLocked(path string, f **os.File) error {
	opened, err := regular.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil {
		*f = opened
		if err = unix.Flock(int(opened.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
			return errInUse
		}
	}
	if err == nil {
		err = checkBolt(opened)
	}
	if readonly.IsDiskFault(err) && !errors.Is(err, errDamaged) {
		err = damaged("%w", err)
	}
	return err
}

// setAside renames the layers and the databases. It returns the suffix of the new names. The database that setAsideDamaged uses to detect
// the damage is renamed after the layers, so an interrupted replacement continues with the next start.
func (s storage) setAside() (suffix string, err error) {
	suffix = asideSuffix + time.Now().UTC().Format("20060102T150405Z")
	layers := filepath.Join(s.dir, snapshotsDir)
	aside := layers + suffix + bootSuffix()
	for base, n := suffix, 1; exists(aside) || exists(filepath.Join(s.root, metaFile+suffix)); n++ { // the clock may stand still
		suffix = fmt.Sprintf("%s.%d", base, n)
		aside = layers + suffix + bootSuffix()
	}
	if exists(layers) {
		_ = durable.Write(aside+usersSuffix, s.listUsers(), 0o600) // fails on a full disk: see isUsed
		if err := os.Rename(layers, aside); err != nil {
			return "", err
		}
	}
	for _, path := range []string{filepath.Join(s.root, metaFile), filepath.Join(s.dir, namesFile)} {
		err := os.Rename(path, path+suffix)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			err = os.Remove(path) // an overlay cannot rename a file of a lower layer that cannot be read
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if err := durable.SyncDir(filepath.Dir(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		prune(path, path+suffix)
	}
	return suffix, nil
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
	if running, err := findMounted(names); err == nil {
		names = running
	}
	return []byte(strings.Join(names, "\n"))
}

// findMounted returns those names that are a part of a path in the mount table of any process. The root file system of a container has the
// path of the container's directory among its mount options, and only the container's processes see it.
func findMounted(names []string) (found []string, err error) {
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	read := map[string]bool{} // mount namespaces
	for _, p := range processes {
		namespace, err := os.Readlink(filepath.Join("/proc", p.Name(), "ns/mnt"))
		if err != nil || read[namespace] {
			continue // no process, or it has ended
		}
		table, err := regular.Read(filepath.Join("/proc", p.Name(), "mountinfo"), maxMountTable)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
			continue // it has ended
		}
		if err != nil {
			return nil, err
		}
		read[namespace] = true
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
		return name != "" && exists(filepath.Join(s.containers, name))
	})
}

// removeUnused removes the layers that were set aside and that no container uses any more. It stops between two layers if stop is closed.
func (s storage) removeUnused(stop <-chan struct{}) error {
	var errs []error
	for _, path := range s.listAside() {
		layers, isList := strings.CutSuffix(path, usersSuffix)
		if isList {
			if !exists(layers) {
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
		errs = append(errs, mounts.RemoveAll(layers), mounts.RemoveAll(layers+usersSuffix))
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
