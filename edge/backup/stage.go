package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/islet-edge/islet/edge/keyfile"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/edge/twin"
	"github.com/islet-edge/islet/internal/durable"
)

// A Staged archive is a directory with the files of an archive. Nothing else was changed.
type Staged struct {
	Summary
	dir      string
	files    []stagedFile
	plainKey []byte // store.key if it is plain and was not written
}

// A stagedFile is a file in the directory of a Staged archive.
type stagedFile struct {
	name string // in the archive
	path string
}

// stage writes the files of an archive to a new directory, which it creates. After an error, the directory may exist. With onlyDatabase,
// the other files are read and not written.
func stage(dir string, from io.Reader, onlyDatabase bool) (*Staged, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	s := &Staged{dir: dir}
	err := read(from, func(m *Manifest) error {
		s.Manifest = m
		return nil
	}, func(e entry, content io.Reader) error {
		s.count(e)
		if onlyDatabase && e.name != stateDir+databaseName {
			if e.name == stateDir+keyName && e.size == keyfile.Size { // it is not written beside the database
				s.plainKey = make([]byte, keyfile.Size)
				_, err := io.ReadFull(content, s.plainKey)
				return err
			}
			_, err := io.Copy(io.Discard, content)
			return err
		}
		// The names are numbers, except for the files that other packages open. So a name of the archive is never a path.
		name := fmt.Sprint(len(s.files))
		if e.name == stateDir+databaseName || e.name == stateDir+keyName {
			name = strings.TrimPrefix(e.name, stateDir)
		}
		if e.name == stateDir+databaseName { // in a directory of its own, because the database is checked without the key
			if err := os.Mkdir(filepath.Join(dir, "db"), 0o700); err != nil {
				return err
			}
			name = filepath.Join("db", name)
		}
		f := stagedFile{e.name, filepath.Join(dir, name)}
		s.files = append(s.files, f)
		mode := e.mode | 0o400
		if !strings.HasPrefix(e.name, filesDir) {
			mode = 0o600
		}
		return writeNew(f.path, mode, e.size, content)
	})
	if err != nil {
		return nil, err
	}
	return s, s.check()
}

// writeNew writes a new file durably.
func writeNew(path string, mode fs.FileMode, size int64, content io.Reader) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, content)
	if err == nil && n != size {
		err = io.ErrUnexpectedEOF
	}
	return errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
}

// path returns the path of a file in the directory, or "" if the archive does not have the file.
func (s *Staged) path(name string) string {
	for _, f := range s.files {
		if f.name == name {
			return f.path
		}
	}
	return ""
}

// checkDatabase opens the database, migrates it to this version of islet, and makes it the database of another board. The highest numbers
// of bundles become at least the given ones. The images of the pulls count as pulled by a pod whose credential is unknown.
func (s *Staged) checkDatabase(ctx context.Context, least numbers, pulls []store.Pull) error {
	st, err := store.Open(ctx, s.path(stateDir+databaseName), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	err = errors.Join(s.adjust(ctx, st, least), st.TakePulls(ctx, pulls), st.CloseToMove())
	if st.Health().Aside != "" {
		return errors.Join(errors.New("the database in the backup is damaged"), err)
	}
	return err
}

func (s *Staged) adjust(ctx context.Context, st *store.Store, least numbers) error {
	n := numbers{s.Manifest.Bundles, s.Manifest.Signed, s.Manifest.Failed}
	n.raise(least)
	s.Manifest.Bundles, s.Manifest.Signed = n.Highest, n.Signed
	if err := st.ForgetImports(ctx); err != nil {
		return err
	}
	before, _, err := st.Meta(ctx, twin.MetaKey)
	if err != nil {
		return err
	}
	record, err := twin.Restored(before, s.Manifest.Node)
	if err != nil {
		return err
	}
	if err := st.SetMeta(ctx, twin.MetaKey, record); err != nil {
		return err
	}
	text, err := json.Marshal(n)
	if err != nil || len(n.Highest)+len(n.Failed) == 0 && n.Signed.IsZero() {
		return err
	}
	return st.SetMeta(ctx, seenKey, string(text))
}

// ErrSealed means that store.key is sealed to the TPM of another board.
var ErrSealed = errors.New("store.key is sealed to a TPM, and the TPM of this board does not open it: repeat the command with " +
	"--recovery, and type the recovery key that islet key seal has shown")

// openKey opens the key of the database, and checks that it is the key of the node. If the TPM of this board does not open it, openKey uses
// the recovery key and makes the key plain. The result reports whether the key has become plain.
func (s *Staged) openKey(place keyfile.Place, recovery string) (plain bool, err error) {
	if s.path(stateDir+keyName) == "" {
		return false, nil
	}
	key, err := place.Read()
	if err != nil && place.IsSealed() {
		if recovery == "" {
			return false, fmt.Errorf("%w (%w)", ErrSealed, err)
		}
		if err := place.Unseal(keyfile.Request{Recovery: recovery}); err != nil {
			return false, fmt.Errorf("open store.key with the recovery key: %w", err)
		}
		plain = true
		key, err = place.Read()
	}
	if err != nil {
		return false, err
	}
	return plain, s.proveKey(key)
}

// proveKey checks that the key of the archive fits its public key.
func (s *Staged) proveKey(key *keyfile.Key) error {
	id, err := key.Identity()
	if err != nil {
		return err
	}
	if s.Manifest.Recipient != "" && id.Recipient() != s.Manifest.Recipient {
		return errors.New("store.key in the backup is not the key of its node")
	}
	s.Manifest.Recipient, s.KeyProof = id.Recipient(), ProvenKey
	return nil
}

// destinations returns the final path of each file. Files outside of the node's directories are permitted below the paths in allowed.
func (s *Staged) destinations(root string, allowed []string) (map[string]string, error) {
	out, outside := map[string]string{}, []string{}
	for _, f := range s.files {
		switch rest, isFile := strings.CutPrefix(f.name, filesDir); {
		case isFile:
			to := "/" + rest
			if !isAllowed(to, root, s.Manifest.State, allowed) {
				outside = append(outside, to)
			}
			out[f.name] = to
		case strings.HasPrefix(f.name, stateDir):
			out[f.name] = filepath.Join(s.Manifest.State, strings.TrimPrefix(f.name, stateDir))
		default:
			out[f.name] = filepath.Join(s.Manifest.Cert, strings.TrimPrefix(f.name, certDir))
		}
	}
	if len(outside) > 0 {
		slices.Sort(outside)
		return nil, fmt.Errorf("the backup has files outside of /etc/islet, /etc/kubernetes and %s: %s: check them, and allow each of "+
			"them, or their directories, with --include=PATH", root, list(outside))
	}
	return out, checkPlaces(slices.Sorted(maps.Values(out)))
}

// checkPlaces returns an error if files with these paths, which are sorted, cannot exist together, or not on this board.
func checkPlaces(paths []string) error {
	all := map[string]bool{}
	for _, path := range paths {
		if all[path] {
			return fmt.Errorf("two files of the backup have the path %s", path)
		}
		all[path] = true
	}
	for _, path := range paths {
		for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
			if all[dir] {
				return fmt.Errorf("the backup has both a file %s and the file %s", dir, path)
			}
			if info, err := os.Stat(dir); err == nil && !info.IsDir() {
				return fmt.Errorf("%s is not a directory on this board, so it cannot have the file %s of the backup", dir, path)
			}
		}
	}
	return nil
}

// isAllowed reports whether an archive may write a file at a path outside of the state directory and of --cert-dir.
func isAllowed(path, root, state string, allowed []string) bool {
	if isBelow(path, state) { // files there have names of their own
		return false
	}
	if slices.Contains(serviceFiles, path) {
		return true
	}
	for _, dir := range append([]string{"/etc/islet", "/etc/kubernetes", root}, allowed...) {
		if isBelow(path, filepath.Clean(dir)) && path != "/" {
			return true
		}
	}
	return false
}

// syncDirs makes the names in directories durable.
func syncDirs(dirs map[string]bool) error {
	var errs []error
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		if err := durable.SyncDir(dir); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
