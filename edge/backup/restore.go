package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/islet-edge/islet/edge/keyfile"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/regular"
)

// A Request says how an archive is restored on this board.
type Request struct {
	Dirs config.Dirs
	Node string // the name that an agent on this board has
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

	// crash returns an error at a step, for tests. The process then changes nothing any more.
	crash func(step string) error
}

// A Result says what Restore did.
type Result struct {
	Summary
	PlainKey bool   // store.key was sealed and has become plain
	Aside    string // suffix of the files that were set aside; empty if there were none
}

// errCrash ends a Restore in a test as a kill does.
var errCrash = errors.New("crash")

func (q *Request) at(step string) error {
	if q.crash == nil {
		return nil
	}
	return q.crash(step)
}

// Check examines an archive as Restore does, in a temporary directory, without its key.
func Check(ctx context.Context, from io.Reader) (*Summary, error) {
	parent, err := os.MkdirTemp("", "islet-backup-") // 0700
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(parent)
	s, err := stage(filepath.Join(parent, "staged"), from, true)
	if err != nil {
		return nil, err
	}
	return &s.Summary, s.checkDatabase(ctx, numbers{})
}

// Restore puts the node of an archive on this board. The caller has locked the state directory, so no agent runs. After an error, the board
// is as it was.
func Restore(ctx context.Context, from io.Reader, q Request) (res *Result, err error) {
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
	p, plain, err := q.prepare(ctx, s)
	if err != nil {
		return nil, err
	}
	res = &Result{Summary: s.Summary, PlainKey: plain}
	if q.DryRun {
		return res, nil
	}
	if err := p.commit(q.Dirs.State, q.at); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(p.Moves, func(m move) bool { return m.Aside != "" }) {
		res.Aside = p.suffix
	}
	return res, nil
}

// prepare checks a staged archive and returns the plan of its files.
func (q *Request) prepare(ctx context.Context, s *Staged) (*plan, bool, error) {
	m := s.Manifest
	if err := m.checkDirs(q.Dirs); err != nil {
		return nil, false, err
	}
	if m.Node != q.Node {
		return nil, false, fmt.Errorf("the backup is of the node %s, and this board is %s: set its host name (hostnamectl set-hostname %[1]s), "+
			"or give --hostname-override=%[1]s if the agent is started with this flag", m.Node, q.Node)
	}
	to, err := s.destinations(q.Dirs.Root, q.Include)
	if err != nil {
		return nil, false, err
	}
	p, err := q.plan(s, to)
	if err != nil {
		return nil, false, err
	}
	least, err := q.leastNumbers(ctx, p)
	if err != nil {
		return nil, false, err
	}
	if err := s.checkDatabase(ctx, least); err != nil {
		return nil, false, err
	}
	place := keyfile.Place{Dir: s.dir, TPM: q.TPM, Policies: q.Policies}
	plain, err := s.openKey(place, q.Recovery)
	if err == nil {
		err = s.checkRecipient(place)
	}
	return p, plain, err
}

// plan returns the moves that put the files of an archive in place.
func (q *Request) plan(s *Staged, to map[string]string) (*plan, error) {
	p := &plan{suffix: ".before-restore-" + q.Now().UTC().Format("20060102T150405Z")}
	var used []string
	for _, f := range s.files {
		mv := move{From: f.path, To: to[f.name]}
		if isState := strings.HasPrefix(f.name, stateDir); !isState {
			mv.From = besidePath(mv.To)
			p.copies = append(p.copies, [2]string{f.path, mv.From})
		}
		aside, err := q.aside(mv, f, p.suffix)
		if err != nil {
			return nil, err
		}
		if mv.Aside = aside; aside != "" {
			used = append(used, mv.To)
		}
		p.Moves = append(p.Moves, mv)
	}
	leftovers, err := q.leftovers(to, p.suffix)
	if err != nil {
		return nil, err
	}
	for from, target := range s.Manifest.Links {
		if to[certDir+target] == "" || to[certDir+from] != "" {
			return nil, fmt.Errorf("the link %s in the backup leads to no file of it", from)
		}
		l := link{filepath.Join(s.Manifest.Cert, from), filepath.Join(s.Manifest.Cert, target)}
		p.Links = append(p.Links, l)
		if exists(l.Path) && !slices.ContainsFunc(leftovers, func(m move) bool { return m.To == l.Path }) {
			leftovers = append(leftovers, move{To: l.Path, Aside: hiddenPath(l.Path, p.suffix)})
		}
	}
	for _, mv := range leftovers {
		used = append(used, mv.To)
	}
	p.Moves = append(leftovers, p.Moves...)
	for _, mv := range p.Moves {
		if mv.Aside != "" && exists(mv.Aside) {
			return nil, fmt.Errorf("%s is there already, from an earlier restore: move it away", mv.Aside)
		}
	}
	// The database is the last one: without it, an agent does not use the state directory.
	slices.SortStableFunc(p.Moves, func(a, b move) int { return rank(a) - rank(b) })
	if len(used) > 0 && !q.SetAside {
		slices.Sort(used)
		return nil, fmt.Errorf("this board has files of a node already: %s: restore on a new board, or rename them with --set-aside, which "+
			"deletes nothing", strings.Join(used[:min(len(used), 10)], ", "))
	}
	return p, nil
}

func rank(m move) int {
	if m.From != "" && filepath.Base(m.To) == databaseName {
		return 1
	}
	return 0
}

// aside returns the path to which a file that is in the way is renamed, or "" if there is none, or one with the same content.
func (q *Request) aside(m move, f stagedFile, suffix string) (string, error) {
	info, err := os.Lstat(m.To)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(f.name, filesDir) && info.Mode().IsRegular() && info.Size() <= maxFile {
		now, err := regular.Read(m.To, maxFile)
		next, err2 := regular.Read(f.path, maxFile)
		if err := errors.Join(err, err2); err != nil {
			return "", err
		}
		if string(now) == string(next) {
			return "", nil
		}
	}
	return hiddenPath(m.To, suffix), nil
}

// leftovers returns moves that set aside files of another node for which the archive has no file.
func (q *Request) leftovers(to map[string]string, suffix string) (list []move, err error) {
	taken := map[string]bool{}
	for _, path := range to {
		taken[path] = true
	}
	add := func(path string) {
		if _, err := os.Lstat(path); err == nil && !taken[path] {
			list = append(list, move{To: path, Aside: hiddenPath(path, suffix)})
		}
	}
	for _, name := range []string{databaseName + "-wal", databaseName + "-shm", keyName} {
		add(filepath.Join(q.Dirs.State, name))
	}
	for _, of := range []struct {
		dir   string
		stale func(name string) bool
	}{
		{q.Dirs.State, func(name string) bool {
			return strings.HasSuffix(name, ".json") || name == strings.TrimSuffix(bundlesDir, "/")
		}},
		{q.Dirs.Cert, func(name string) bool {
			return strings.HasPrefix(name, "kubelet") && slices.Contains([]string{".pem", ".crt", ".key", ".tmp"}, filepath.Ext(name))
		}},
	} {
		entries, err := os.ReadDir(of.dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), ".") && of.stale(e.Name()) {
				add(filepath.Join(of.dir, e.Name()))
			}
		}
	}
	return list, nil
}

// leastNumbers returns the numbers of bundles that the restored node must have seen: those of the request, and those of a node that is set
// aside.
func (q *Request) leastNumbers(ctx context.Context, p *plan) (numbers, error) {
	least := numbers{Highest: q.Highest}
	for _, m := range p.Moves {
		if m.Aside == "" || filepath.Base(m.To) != bundleRecord {
			continue
		}
		text, err := regular.Read(m.To, maxFile)
		if err != nil {
			return least, err
		}
		// A damaged record must not keep the board from its restore.
		if n, err := parseNumbers(text); err == nil {
			least.raise(n)
		}
	}
	return least, ctx.Err()
}

// checkSandboxes returns an error if pods of another node may run on this board.
func checkSandboxes(state string) error {
	entries, err := os.ReadDir(filepath.Join(state, "runtime", "sandboxes"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(entries) > 0 {
		return errors.New("pods of a node are on this board: remove them with islet cleanup first")
	}
	return nil
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
