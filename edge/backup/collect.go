package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/edge/keyfile"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/k3s"
	"github.com/islet-edge/islet/internal/regular"
)

const keyName = keyfile.Name

// A Source is a node from which an archive is made.
type Source struct {
	Config  *config.Config
	Version string // of islet
	Now     func() time.Time
	// Copy writes a consistent copy of the database to a new file.
	Copy func(ctx context.Context, to string) error
	// Recipient returns the node's public key for sealed Secrets, or "" if it is unknown.
	Recipient func() string
	// Scratch is the directory for the copy of the database.
	Scratch string
	// Bundles adds the record of bundles, and the documents of the bundles that the node keeps.
	Bundles bool
	// Include are further files and directories, as absolute paths.
	Include []string
}

const (
	// copyPrefix begins the name of the temporary copy of the database.
	copyPrefix = ".backup-"
	// minFree is the space that the copy leaves to the writers of the node.
	minFree = 16 << 20
)

// An Archive has everything that a backup consists of. It needs no lock of the node any more.
type Archive struct {
	manifest *Manifest
	db       *os.File // without a name, so that nothing is left of a process that is killed
	list     []collected
}

// Close releases the copy of the database.
func (a *Archive) Close() error { return a.db.Close() }

// Collect copies the database and reads the files of the node. The caller closes the Archive. Only one call at a time may use the same
// directory Scratch.
func (s Source) Collect(ctx context.Context) (a *Archive, err error) {
	left, _ := filepath.Glob(filepath.Join(s.Scratch, copyPrefix+"*")) // of a process that was killed
	for _, file := range left {
		_ = os.Remove(file)
	}
	if err := s.checkSpace(); err != nil {
		return nil, err
	}
	copied := filepath.Join(s.Scratch, copyPrefix+databaseName)
	if err := s.Copy(ctx, copied); err != nil {
		return nil, err
	}
	defer os.Remove(copied)
	db, err := regular.Open(copied)
	if err != nil {
		return nil, err
	}
	a = &Archive{db: db}
	join, err := k3s.LockFiles(k3s.Root(s.Config.Dirs.State)) // or files of two clusters could be in one archive
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	defer join.Close() // also if it is nil
	// The database is copied before the other files are read. So the bundle in the record is at least as new as the bundle in the database.
	if a.list, a.manifest, err = s.collect(ctx, copied); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return a, nil
}

// checkSpace returns an error if the copy of the database would fill the disk.
func (s Source) checkSpace() error {
	info, err := os.Stat(filepath.Join(s.Config.Dirs.State, databaseName))
	var disk unix.Statfs_t
	if err != nil || unix.Statfs(s.Scratch, &disk) != nil { // the copy reports the error
		return nil
	}
	if need := info.Size() + minFree; int64(disk.Bavail)*int64(disk.Bsize) < need {
		return fmt.Errorf("%s needs %d MiB for a copy of the database, and has less", s.Scratch, need>>20)
	}
	return nil
}

// Write writes the archive. It is incomplete if there is an error.
func (a *Archive) Write(ctx context.Context, w io.Writer) error {
	info, err := a.db.Stat()
	if err != nil {
		return err
	}
	if info.Size() > maxDatabase {
		return fmt.Errorf("the database has more than %d MiB", maxDatabase>>20)
	}
	out, err := newWriter(w, a.manifest)
	if err == nil {
		err = out.addFrom(stateDir+databaseName, 0o600, info.Size(), a.db)
	}
	for _, f := range a.list {
		if err == nil {
			err = out.add(f.name, f.mode, f.data)
		}
	}
	return errors.Join(err, ctx.Err(), closeIf(err == nil, out))
}

func closeIf(ok bool, c io.Closer) error {
	if !ok || c == nil {
		return nil
	}
	return c.Close()
}

// A collected file is one that is small.
type collected struct {
	name string
	mode fs.FileMode
	data []byte
}

// A collector reads files. The first error ends it.
type collector struct {
	manifest *Manifest
	list     []collected
	names    map[string]bool
	total    int64
	err      error
}

// collect reads all files but the database.
func (s Source) collect(ctx context.Context, database string) ([]collected, *Manifest, error) {
	dirs, place := s.Config.Dirs, keyfile.Place{Dir: s.Config.Dirs.State}
	m := &Manifest{
		Format: format, Version: s.Version, Time: s.Now().UTC().Truncate(time.Second), Node: s.Config.Node.Name, State: dirs.State,
		Cert: dirs.Cert, Recipient: s.Recipient(), Sealed: place.IsSealed(), Links: map[string]string{},
	}
	c := &collector{manifest: m, names: map[string]bool{}}
	if err := s.addNumbers(ctx, m, database); err != nil {
		return nil, nil, err
	}
	c.addOptional(stateDir+keyName, filepath.Join(dirs.State, keyName))
	if !c.names[stateDir+keyName] { // a key that is only in memory is not one of the archive
		m.Recipient = ""
	}
	c.addMatches(stateDir, dirs.State, func(name string) bool { return isRecord(name) && name != bundleRecord })
	if s.Bundles {
		c.addBundles(dirs.State)
	}
	c.addOptional(stateDir+indexRecord, filepath.Join(dirs.State, indexRecord))
	c.addMatches(stateDir+k3sDir, filepath.Join(dirs.State, k3sLink), func(name string) bool { return isK3sFile(k3sDir + name) })
	c.addCertificates(dirs.Cert)
	for _, path := range s.Include {
		if _, err := os.Lstat(path); err != nil {
			c.fail(err)
		}
		c.addPath(path, dirs, true)
	}
	c.addPath(passwordFile(dirs.State), dirs, true)
	for _, path := range s.configured() {
		c.addPath(path, dirs, false)
	}
	return c.list, m, c.err
}

// passwordFile returns the path of the file with the password of the node at a k3s server, or "".
func passwordFile(state string) string {
	var r struct{ PasswordFile string }
	text, err := regular.Read(filepath.Join(state, k3sLink, "cluster.json"), maxFile)
	if err != nil || json.Unmarshal(text, &r) != nil {
		return ""
	}
	return r.PasswordFile
}

// addNumbers sets what the node remembers of bundles, from both places that remember it, and the bundle in use.
func (s Source) addNumbers(ctx context.Context, m *Manifest, database string) error {
	text, _, err := store.ReadMeta(ctx, database, seenKey)
	if err != nil {
		return fmt.Errorf("read the copy of the database: %w", err)
	}
	record, err := regular.Read(filepath.Join(s.Config.Dirs.State, bundleRecord), maxRecord)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	n, err := parseNumbers([]byte(text))
	if err != nil {
		return err
	}
	var now struct {
		Trial     any
		Abandoned string
		Current   *bundleName
	}
	if json.Unmarshal(record, &now) == nil && (now.Trial != nil || now.Abandoned != "") {
		return errors.New("a bundle is on trial: wait for its end (islet bundle status), and repeat the command")
	}
	other, err := parseNumbers(record)
	if err != nil {
		return err
	}
	n.raise(other)
	m.Bundles, m.Signed, m.Failed, m.InUse = n.Highest, n.Signed, n.Failed, now.Current
	return nil
}

// fail records an error.
func (c *collector) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// add reads a file. If it is too large or no regular file, add records its path in the manifest.
func (c *collector) add(name, path string) {
	if c.err != nil || c.names[name] {
		return
	}
	f, err := regular.Open(path)
	if errors.Is(err, regular.ErrNotRegular) {
		c.omit(path)
		return
	}
	if err != nil {
		c.fail(err)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		c.fail(err)
		return
	}
	limit := limitOf(name)
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	isLarge := int64(len(data)) > limit
	switch {
	case err != nil:
		c.fail(fmt.Errorf("read %s: %w", path, err))
	case isLarge && strings.HasPrefix(name, filesDir), checkName(name) != nil:
		c.omit(path)
	case isLarge:
		c.fail(fmt.Errorf("%s has more than %d bytes", path, limit))
	case len(c.list) >= maxEntries-3 || c.total+int64(len(data)) > maxTotal-maxDatabase:
		c.fail(fmt.Errorf("the configuration has more than %d files or %d MiB, the first one too many is %s", maxEntries-3,
			(maxTotal-maxDatabase)>>20, path))
	default:
		c.names[name], c.total = true, c.total+int64(len(data))
		c.manifest.Omitted = slices.DeleteFunc(c.manifest.Omitted, func(other string) bool { return other == path })
		c.list = append(c.list, collected{name, info.Mode(), data})
	}
}

// omit records that a file is not in the archive.
func (c *collector) omit(path string) {
	if len(c.manifest.Omitted) < maxListed && !slices.Contains(c.manifest.Omitted, path) {
		c.manifest.Omitted = append(c.manifest.Omitted, path)
	}
}

// addOptional adds a file if it exists.
func (c *collector) addOptional(name, path string) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return
	}
	c.add(name, path)
}

// addMatches adds the regular files in a directory whose names match. It records the paths of links and other files that are not regular.
func (c *collector) addMatches(prefix, dir string, matches func(string) bool) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			c.fail(err)
		}
		return
	}
	for _, e := range entries {
		switch {
		case !matches(e.Name()):
		case e.Type().IsRegular():
			c.addOptional(prefix+e.Name(), filepath.Join(dir, e.Name()))
		default:
			c.omit(filepath.Join(dir, e.Name()))
		}
	}
}

// addBundles adds the record of bundles and their documents. If the record changes meanwhile, the documents may be missing, so addBundles
// reads the record again.
func (c *collector) addBundles(state string) {
	record := filepath.Join(state, bundleRecord)
	before, err := regular.Read(record, maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		c.fail(err)
		return
	}
	c.add(stateDir+bundleRecord, record)
	dir := filepath.Join(state, bundlesDir)
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		rest, err := filepath.Rel(state, path)
		if err == nil && isBundleFile(rest) { // not a folder that is being written
			c.add(stateDir+rest, path)
		}
		return err
	})
	after, again := regular.Read(record, maxRecord)
	if err != nil && !errors.Is(err, fs.ErrNotExist) || again != nil || string(before) != string(after) {
		c.fail(errors.Join(errors.New("the bundle in use has changed during the backup: repeat it"), err, again))
	}
}

// addCertificates adds the files of --cert-dir, and the links between them. It records the paths of all others.
func (c *collector) addCertificates(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			c.fail(err)
		}
		return
	}
	for _, e := range entries {
		name := e.Name()
		path := filepath.Join(dir, name)
		to, err := os.Readlink(path)
		isLink := err == nil && (filepath.Dir(to) == dir || filepath.Dir(to) == ".")
		switch to = filepath.Base(to); {
		case isCertificate(dir, name):
			c.addOptional(certDir+name, path)
		case isLink && isCertificate(dir, to) && isPlainName(name) && !strings.HasPrefix(name, "."):
			c.manifest.Links[name] = to
			c.addOptional(certDir+to, filepath.Join(dir, to)) // it may be newer than entries
		default:
			c.omit(path)
		}
	}
}

// isCertificate reports whether a file of --cert-dir is in an archive. Hidden files are left out, because they are incomplete files of
// programs that still write them. Large files are left out, except certificates and keys: the backup would be useless without them, so they
// are an error.
func isCertificate(dir, name string) bool {
	info, err := os.Lstat(filepath.Join(dir, name))
	return err == nil && info.Mode().IsRegular() && isPlainName(name) && !strings.HasPrefix(name, ".") &&
		(info.Size() <= maxFile || slices.Contains([]string{".pem", ".crt", ".key"}, filepath.Ext(name)))
}

// addPath adds a file, or the files in a directory and in the directories below it. It leaves out what is in the archive already. Hidden
// files in a directory are only added if the user has named the directory.
func (c *collector) addPath(path string, dirs config.Dirs, named bool) {
	if path = filepath.Clean(path); path == "." || c.err != nil {
		return
	}
	if isBelow(path, dirs.State) {
		if named {
			c.omit(path)
		}
		return
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		c.fail(err)
		return
	}
	if !info.IsDir() {
		name := filepath.Base(path)
		if _, isLink := c.manifest.Links[name]; filepath.Dir(path) != dirs.Cert || !isLink && !c.names[certDir+name] {
			c.add(filesDir+strings.TrimPrefix(path, "/"), path)
		}
		return
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		c.fail(err)
		return
	}
	for _, e := range entries {
		file := filepath.Join(path, e.Name())
		switch isHidden := strings.HasPrefix(e.Name(), ".") && !named; {
		case c.names[filesDir+strings.TrimPrefix(file, "/")]:
		case isHidden || e.Type()&fs.ModeSymlink != 0 && isDir(file): // a link to a directory could lead anywhere
			c.omit(file)
		default:
			c.addPath(file, dirs, named)
		}
	}
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// isBelow reports whether a path is a directory, or in it.
func isBelow(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
