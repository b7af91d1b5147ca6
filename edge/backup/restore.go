package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/edge/keyfile"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/k3s"
	"github.com/islet-edge/islet/internal/regular"
)

// A Request says how an archive is restored on this board.
type Request struct {
	Dirs config.Dirs
	Conf string // directory of the configuration files that an agent reads without a flag; "" if there is none
	// Start returns the directories and the node name of the agents that may be started on a board with the given files, in the order of
	// preference. One of them must be the node of the archive.
	Start func(board fs.FS) ([]Identity, error)
	// Include are paths outside of the directories of the node to which the archive may write.
	Include []string
	// SetAside renames files that are in the way. Without it, they are an error.
	SetAside bool
	// DryRun ends before the first change of a file that an agent uses.
	DryRun bool
	// TPM is the device of the TPM of this board, and Policies the directory with signatures for it.
	TPM, Policies string
	// Recovery opens a key that is sealed to the TPM of another board. It may be empty.
	Recovery string
	// Highest are the least numbers of bundles that the node must have seen.
	Highest map[string]int64
	Now     func() time.Time
	// Stage is called when a stage begins, with a description and the number of bytes, or 0. It may be nil.
	Stage func(what string, bytes int64)

	// Step is called after each step. After an error, Restore changes nothing any more. Tests end the process there.
	Step func(step string) error
}

// An Identity is the node as which an agent runs: its directories and its name.
type Identity struct {
	Dirs config.Dirs
	Node string
}

// A Result says what Restore did.
type Result struct {
	Summary
	PlainKey bool // store.key was sealed and has become plain
	// Unread says which numbers of bundles of the node before could not be read.
	Unread error
	// UnreadIndex says which record of the newest index of versions could not be read. The other record is in force.
	UnreadIndex error
	Aside       string // suffix of the files that were set aside; empty if there were none
	// InTheWay contains the paths of the existing files that the restore replaces. Restore has renamed them, or, with DryRun, would rename
	// them.
	InTheWay []string
}

// errCrash ends a Restore in a test as a kill does.
var errCrash = errors.New("crash")

func (q *Request) tell(what string, bytes int64) {
	if q.Stage != nil {
		q.Stage(what, bytes)
	}
}

func (q *Request) at(step string) error {
	if q.Step == nil {
		return nil
	}
	return q.Step(step)
}

// Check examines an archive as Restore does, in a temporary directory. It does not open a key that is sealed to a TPM.
func Check(ctx context.Context, from io.Reader) (*Summary, error) {
	parent, err := os.MkdirTemp("", "islet-backup-") // 0700
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(parent)
	defer context.AfterFunc(ctx, func() { os.RemoveAll(parent) })() // a read may block until the process ends
	s, err := stage(filepath.Join(parent, "staged"), from, true)
	if err != nil {
		return nil, err
	}
	switch {
	case s.plainKey != nil:
		err = s.proveKey(&keyfile.Key{Bytes: s.plainKey})
	case s.key > 0:
		s.KeyProof = SealedKey
	}
	return &s.Summary, errors.Join(err, s.checkDatabase(ctx, numbers{}))
}

// Restore puts the node of an archive on this board. The caller has locked the state directory, so no agent runs, and the directory of the
// k3s cluster, so no islet join runs. After an error, the board is as it was.
func Restore(ctx context.Context, from io.Reader, q Request) (res *Result, err error) {
	if q.DryRun && IsDecided(q.Dirs.State) {
		return nil, errors.New("an interrupted restore is completed at the next start of the agent, or of islet restore without --dry-run")
	}
	if err := recoverDirs(q.Dirs.State, q.at); err != nil {
		return nil, err
	}
	if err := checkSandboxes(q.Dirs.State); err != nil {
		return nil, err
	}
	dir := filepath.Join(q.Dirs.State, stagingName)
	defer func() {
		switch {
		case errors.Is(err, errCrash):
		case err != nil && IsDecided(q.Dirs.State):
			err = fmt.Errorf("%w: the next start of the agent completes the restore", err)
		case err != nil || q.DryRun:
			err = errors.Join(err, recoverDirs(q.Dirs.State, q.at))
		}
	}()
	s, err := stage(dir, from, false)
	if err != nil {
		return nil, err
	}
	q.tell("checking the database", s.Database)
	res = &Result{}
	p, err := q.prepare(ctx, s, res)
	if err != nil {
		return nil, err
	}
	res.Summary = s.Summary
	for _, m := range p.Moves {
		if m.Aside != "" {
			res.InTheWay = append(res.InTheWay, m.To)
		}
	}
	if q.DryRun {
		return res, nil
	}
	q.tell(fmt.Sprintf("putting %d files in place", s.Files), s.Bytes)
	if err := p.commit(q.Dirs.State, q.at); err != nil {
		return nil, err
	}
	if len(res.InTheWay) > 0 {
		res.Aside = p.suffix
	}
	return res, nil
}

// prepare checks a staged archive and returns the plan of its files.
func (q *Request) prepare(ctx context.Context, s *Staged, res *Result) (*plan, error) {
	m := s.Manifest
	if err := m.checkDirs(q.Dirs); err != nil {
		return nil, err
	}
	to, err := s.destinations(q.Dirs.Root, q.Include)
	if err != nil {
		return nil, err
	}
	p, err := q.plan(s, to)
	if err != nil {
		return nil, err
	}
	if err := q.checkStart(m, newAfter(s, to, p)); err != nil {
		return nil, err
	}
	least := numbers{Highest: q.Highest}
	res.Unread = q.addSetAside(ctx, &least)
	if res.UnreadIndex, err = q.raiseIndex(s); err != nil {
		return nil, err
	}
	if err := s.checkDatabase(ctx, least); err != nil {
		return nil, err
	}
	res.PlainKey, err = s.openKey(keyfile.Place{Dir: s.dir, TPM: q.TPM, Policies: q.Policies}, q.Recovery)
	return p, err
}

// checkStart returns an error if no agent would be the node of the archive after the restore. The parameter board contains the files after
// the restore. So the flags of the service and of config.FlagsFile are those of the archive, or there are none.
func (q *Request) checkStart(m *Manifest, board fs.FS) error {
	list, err := q.Start(board)
	if err != nil {
		return fmt.Errorf("the agent would not start after the restore: %w", err)
	}
	var names []string
	for _, i := range list {
		dirs := m.checkDirs(i.Dirs)
		switch {
		case i.Node != m.Node:
			names = append(names, i.Node)
		case dirs == nil:
			return nil
		default:
			err = dirs
		}
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("the backup is of the node %s, and after the restore this board would be %s: set its host name "+
		"(hostnamectl set-hostname %[1]s), or give --hostname-override=%[1]s if the agent is started with this flag", m.Node,
		strings.Join(names, " or "))
}

// addSetAside raises the numbers to those of a node that is set aside. What cannot be read must not keep the board from its restore.
func (q *Request) addSetAside(ctx context.Context, least *numbers) error {
	add := func(text []byte, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		var n numbers
		if err == nil {
			n, err = parseNumbers(text)
		}
		least.raise(n)
		return err
	}
	err := add(regular.Read(filepath.Join(q.Dirs.State, bundleRecord), maxRecord))
	if db := filepath.Join(q.Dirs.State, databaseName); exists(db) {
		text, _, failed := store.ReadMeta(ctx, db, seenKey)
		err = errors.Join(err, add([]byte(text), failed))
	}
	return err
}

// plan returns the renames that put the files of an archive in place.
func (q *Request) plan(s *Staged, to map[string]string) (*plan, error) {
	p := &plan{suffix: ".before-restore-" + q.Now().UTC().Format("20060102T150405Z")}
	for from, target := range s.Manifest.Links {
		if to[certDir+target] == "" || to[certDir+from] != "" {
			return nil, fmt.Errorf("the link %s in the backup leads to no file of it", from)
		}
		p.Links = append(p.Links, link{filepath.Join(s.Manifest.Cert, from), filepath.Join(s.Manifest.Cert, target)})
	}
	used, err := q.inTheWay(s, p.Links, to)
	if err != nil {
		return nil, err
	}
	if len(used) > 0 && !q.SetAside {
		return nil, fmt.Errorf("this board has files of a node already: %s: restore on a new board, or rename them with --set-aside, "+
			"which deletes nothing", list(used))
	}
	targets := slices.Collect(maps.Values(to))
	for _, path := range used {
		keep := q.hasFlags(path) && slices.Contains(targets, path)
		p.Moves = append(p.Moves, move{To: path, Aside: hiddenPath(path, p.suffix), Keep: keep})
	}
	var last move
	for _, f := range s.files {
		m := move{From: f.path, To: to[f.name]}
		if isSame(f, m.To) {
			continue
		}
		// A file outside of the state directory may be on another file system, and so may the directory of the index. The other directories
		// in the state directory are new, because old ones are set aside.
		if !strings.HasPrefix(f.name, stateDir) || f.name == stateDir+indexRecord {
			m.From = besidePath(m.To)
			p.copies = append(p.copies, [2]string{f.path, m.From})
		}
		if f.name == stateDir+databaseName {
			last = m
			continue
		}
		p.Moves = append(p.Moves, m)
	}
	// An agent that starts after a power cut finds the restore by its flags. So the files with flags are replaced first, and are never
	// missing.
	sort.SliceStable(p.Moves, func(i, j int) bool { return q.hasFlags(p.Moves[i].To) && !q.hasFlags(p.Moves[j].To) })
	p.Moves = append(p.Moves, last) // without the database, an agent does not use the state directory
	if slices.ContainsFunc(s.files, func(f stagedFile) bool { return isK3sFile(strings.TrimPrefix(f.name, stateDir)) }) {
		p.Links = append(p.Links, link{filepath.Join(q.Dirs.State, k3sLink), filepath.Base(k3sDir)})
		if err := checkMovable(k3s.Root(q.Dirs.State), unix.STATX_ATTR_MOUNT_ROOT); err != nil {
			return nil, err
		}
	}
	return p, p.check()
}

// hasFlags reports whether a file has flags of the agent.
func (q *Request) hasFlags(path string) bool {
	return slices.Contains(serviceFiles, path) || q.Conf != "" && path == filepath.Join(q.Conf, config.FlagsFile)
}

// isSame reports whether a file outside of the directories of the node is there already. It stays, for it may be a mount point.
func isSame(f stagedFile, to string) bool {
	return strings.HasPrefix(f.name, filesDir) && haveSameContent(f.path, to)
}

// inTheWay returns the paths of the files of another node on this board, and of other files whose places the archive needs, sorted.
func (q *Request) inTheWay(s *Staged, links []link, to map[string]string) (used []string, err error) {
	for _, f := range s.files {
		if path := to[f.name]; exists(path) && !isSame(f, path) {
			used = append(used, path)
		}
	}
	for _, l := range links {
		if exists(l.Path) {
			used = append(used, l.Path)
		}
	}
	for _, dir := range []string{q.Dirs.State, q.Dirs.Cert} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			name, isState := e.Name(), dir == q.Dirs.State
			if isState && (isRecord(name) || slices.Contains(ofNode, name)) || !isState && strings.HasPrefix(name, "kubelet") {
				used = append(used, filepath.Join(dir, name))
			}
		}
	}
	if index := filepath.Join(q.Dirs.State, indexRecord); exists(index) {
		used = append(used, index)
	}
	used = append(used, clusterFiles(k3s.Root(q.Dirs.State))...)
	targets := slices.Collect(maps.Values(to))
	for _, name := range ofConf {
		if path := filepath.Join(q.Conf, name); q.Conf != "" && exists(path) && !slices.Contains(targets, path) {
			used = append(used, path)
		}
	}
	slices.Sort(used)
	used = slices.Compact(used)
	// A file below a directory that is set aside has no move of its own, which would set its successor aside after a power cut.
	return slices.DeleteFunc(slices.Clone(used), func(path string) bool {
		return slices.ContainsFunc(used, func(dir string) bool { return path != dir && isBelow(path, dir) })
	}), nil
}

// ofNode are files of the state directory that belong to one node, besides the records of isRecord.
var ofNode = []string{
	databaseName, databaseName + "-wal", databaseName + "-shm", keyName, "bundles", "bundle-report.json", "bundle-source.json",
	"configuration.json.broken",
}

// clusterFiles returns the paths in the directory of the k3s cluster that must be set aside. The directory itself stays, because islet join
// and the caller of Restore lock it. An empty directory belongs to no node.
func clusterFiles(root string) (used []string) {
	if info, err := os.Lstat(root); err == nil && !info.IsDir() {
		return []string{root}
	}
	entries, _ := os.ReadDir(root) // a directory that cannot be read has no place for a file either
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			used = append(used, filepath.Join(root, e.Name()))
		}
	}
	return used
}

// ofConf are files of Request.Conf that make a board a node. Files that the archive lacks are set aside too. Otherwise the restored agent
// would read them, and start under another name or in another cluster.
var ofConf = []string{config.FlagsFile, "kubelet.yaml", "edge.yaml", "kubeconfig", "bootstrap.kubeconfig", "ca.crt"}

// haveSameContent reports whether two small files have the same content.
func haveSameContent(a, b string) bool {
	one, err := regular.Read(a, maxFile)
	two, err2 := regular.Read(b, maxFile)
	return err == nil && err2 == nil && string(one) == string(two)
}

// list returns the first elements of a list in words.
func list(paths []string) string { return strings.Join(paths[:min(len(paths), 10)], ", ") }

// checkSandboxes returns an error if pods of another node may run on this board.
func checkSandboxes(state string) error {
	entries, err := os.ReadDir(filepath.Join(state, "runtime", "sandboxes"))
	if len(entries) > 0 {
		return errors.New("pods of a node are on this board: remove them with islet cleanup first")
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// hiddenPath returns a path in the same directory that no reader of configurations or manifests uses.
func hiddenPath(path, suffix string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+suffix)
}

// besidePath returns the path of a new file until it gets its name.
func besidePath(path string) string { return hiddenPath(path, ".islet-restore") }
