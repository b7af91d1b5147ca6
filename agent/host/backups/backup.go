package backups

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/islet-edge/islet/agent/host/process"
	"github.com/islet-edge/islet/edge/backup"
	"github.com/islet-edge/islet/edge/keyfile"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/bundle/sealed"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/hostcommand"
	"github.com/islet-edge/islet/internal/printable"
	"github.com/islet-edge/islet/internal/regular"
)

// maxKeys is the maximum size of a file with keys.
const maxKeys = 1 << 20

// makeKey makes a key to which backups can be sealed, and prints its public part.
func (env Env) makeKey(file string) error {
	private, public, err := sealed.NewKey()
	if err != nil {
		return err
	}
	if err := createFile(file, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "# public key: %s\n%s\n", public, private)
		return err
	}); err != nil {
		return err
	}
	_, err = fmt.Fprintln(env.Stdout, public)
	return err
}

// createFile writes a new file of mode 0600 durably. It does not replace a file.
func createFile(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return durable.SyncDir(filepath.Dir(path))
}

// A sealer starts the encryption of what is written to its result.
type sealer func(io.Writer) (io.WriteCloser, error)

// sealTo returns the encryption to the keys of the command line.
func (o *options) sealTo() (sealer, error) {
	var keys strings.Builder
	for _, key := range o.to {
		if !strings.HasPrefix(key, "age1") {
			text, err := regular.Read(key, maxKeys)
			if err != nil {
				return nil, fmt.Errorf("--to: neither a public key (age1...) nor a file with public keys: %w", err)
			}
			key = string(text)
		}
		keys.WriteString(key + "\n")
	}
	to, err := sealed.Recipients(keys.String())
	if err != nil {
		return nil, fmt.Errorf("--to: %w", err)
	}
	return func(w io.Writer) (io.WriteCloser, error) { return sealed.SealStream(w, to) }, nil
}

// backup writes a backup.
func (env Env) backup(ctx context.Context, o *options) error {
	seal, err := o.sealTo()
	if err != nil {
		return err
	}
	if f, ok := env.Stdout.(*os.File); o.file == "-" && ok && term.IsTerminal(int(f.Fd())) {
		return hostcommand.Usage(errors.New("a backup is not written to a terminal: give a file, or a pipe"))
	}
	told := env.progress(o)
	told.stage("copying the database, and reading the files of the node", 0)
	archive, err := env.open(ctx, o)
	if err != nil {
		return err
	}
	defer archive.Close()
	archive = told.follow(archive, "writing "+o.fileOr("the standard output"), 0)
	if o.file == "-" {
		_, err := writeSealed(env.Stdout, archive, seal)
		return err
	}
	s, err := writeFile(o.file, archive, seal)
	if err != nil {
		return err
	}
	fmt.Fprintf(env.Stdout, "%s: a backup of the node %s, with %d files, %d KiB\n",
		o.file, printable.Line(s.Manifest.Node), s.Files, s.Bytes>>10)
	env.printNotes(env.Stdout, s)
	return nil
}

// printNotes prints what a person must know about a backup.
func (env Env) printNotes(w io.Writer, s *backup.Summary) {
	m := s.Manifest
	for i, path := range m.Omitted {
		if i == 10 {
			fmt.Fprintf(w, "note: and %d more\n", len(m.Omitted)-i)
			break
		}
		fmt.Fprintf(w, "note: not in the backup, because it is too large, hidden, below the state directory, a link to elsewhere or no "+
			"regular file: %s\n", printable.Line(path))
	}
	if isOlder(s) {
		fmt.Fprintf(w, "note: the node uses %s number %d, because a later one has failed or was reverted: after a restore, use "+
			"islet bundle apply --older\n", printable.Cut(m.InUse.Name, 80), m.InUse.Number)
	}
	if m.Sealed {
		fmt.Fprintln(w, "note: store.key is sealed to the TPM of its board: islet restore on another board asks for the recovery key")
	}
	fmt.Fprintln(w, "not in a backup: images, data in volumes and claims, logs")
}

// isOlder reports whether the restored node needs islet bundle apply --older to get its bundle back. This is so if the backup does not
// contain the bundle, and the node has already seen a higher number.
func isOlder(s *backup.Summary) bool {
	b := s.Manifest.InUse
	return b != nil && s.Bundles == 0 && b.Number < s.Manifest.Bundles[b.Name]
}

func writeSealed(to io.Writer, archive io.Reader, seal sealer) (*backup.Summary, error) {
	w, err := seal(to)
	if err != nil {
		return nil, err
	}
	s, err := backup.Copy(w, archive)
	if err == nil {
		err = w.Close()
	}
	return s, err
}

// writeFile writes a sealed file. It replaces an earlier backup when the new one is complete and on the disk. It replaces no other file.
func writeFile(path string, archive io.Reader, seal sealer) (s *backup.Summary, err error) {
	if err := checkReplaced(path); err != nil {
		return nil, err
	}
	next := durable.TemporaryPath(path)
	f, err := createAlone(next)
	if err != nil {
		return nil, err
	}
	defer f.Close() // and end the lock, after the rename
	s, err = writeSealed(f, archive, seal)
	if err = errors.Join(err, f.Sync()); err != nil {
		return nil, errors.Join(err, removeOwn(f, next))
	}
	if !isAt(f, next) {
		return nil, busyError(path)
	}
	if err := os.Rename(next, path); err != nil {
		return nil, errors.Join(err, removeOwn(f, next))
	}
	return s, durable.SyncDir(filepath.Dir(path))
}

// A busyError is the path of a file that another process writes.
type busyError string

func (path busyError) Error() string {
	return fmt.Sprintf("another backup is written to %s", string(path))
}

// createAlone creates a file that no other process writes, and locks it. It removes the file of a process that was killed.
func createAlone(path string) (*os.File, error) {
	if old, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0); err == nil {
		err = errors.Join(unix.Flock(int(old.Fd()), unix.LOCK_EX|unix.LOCK_NB), old.Close())
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, busyError(path)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	_ = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) // without locks, isAt notices another process
	return f, nil
}

// isAt reports whether a path still leads to a file.
func isAt(f *os.File, path string) bool {
	here, err := f.Stat()
	there, err2 := os.Lstat(path)
	return err == nil && err2 == nil && os.SameFile(here, there)
}

// removeOwn removes a file unless another process has replaced it.
func removeOwn(f *os.File, path string) error {
	if !isAt(f, path) {
		return nil
	}
	return os.Remove(path)
}

// checkReplaced returns an error if the path has a file that is not sealed, such as one that was named by mistake.
func checkReplaced(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	f, err := regular.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	head := make([]byte, len(sealed.FileMagic))
	if _, err := io.ReadFull(f, head); err != nil || string(head) != sealed.FileMagic {
		return fmt.Errorf("%s is not a backup, so it is not replaced: give another file", path)
	}
	return nil
}

// open returns the archive of the running agent, or one that this process makes while no agent runs.
func (env Env) open(ctx context.Context, o *options) (io.ReadCloser, error) {
	socket, flags := env.Socket, env.agentFlags(o)
	isNamed := socket != "" && len(o.agent) == 0
	if !isNamed {
		dirs, _, err := config.Locate(flags)
		if err != nil {
			return nil, hostcommand.Usage(err)
		}
		socket = filepath.Join(dirs.Run, filepath.Base(api.DefaultSocket))
	}
	query := url.Values{"include": o.include}
	if o.bundles {
		query.Set("bundles", "")
	}
	archive, silent, err := env.Ask(socket, query)
	if err == nil || !silent || isNamed {
		return archive, err
	}
	cfg, _, err := env.Load(flags)
	if err != nil {
		return nil, hostcommand.Usage(err)
	}
	if used, err := process.DirsUsed(cfg.Dirs); err != nil {
		return nil, err
	} else if !used {
		return nil, fmt.Errorf("no agent has run with %s yet: start it, or give the flags that it is started with", cfg.Dirs.State)
	}
	locks, err := process.Lock(cfg.Dirs.State)
	if err != nil {
		return nil, fmt.Errorf("an agent is starting or hangs, because nobody answers at %s: %w", socket, err)
	}
	if err := backup.Recover(cfg.Dirs.State); err != nil {
		return nil, errors.Join(err, locks.Close())
	}
	made, err := env.source(cfg, o).Collect(ctx)
	if err := errors.Join(err, locks.Close()); err != nil { // the agent may start while the archive is read
		return nil, err
	}
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.CloseWithError(errors.Join(made.Write(ctx, w), made.Close()))
	}()
	return pipe{r, done}, nil
}

// A pipe is the archive of a goroutine. Close waits for the end of the goroutine.
type pipe struct {
	*io.PipeReader
	done chan struct{}
}

// Close implements io.Closer.
func (p pipe) Close() error {
	err := p.PipeReader.Close()
	<-p.done
	return err
}

// source returns the node of a stopped agent.
func (env Env) source(cfg *config.Config, o *options) backup.Source {
	place := keyfile.Place{Dir: cfg.Dirs.State, TPM: cfg.Edge.TPM.Device, Policies: cfg.Edge.TPM.Policies}
	return backup.Source{
		Config: cfg, Version: env.Version, Now: time.Now, Scratch: cfg.Dirs.State, Bundles: o.bundles, Include: o.include,
		Copy: store.CopyFileFrom(filepath.Join(cfg.Dirs.State, process.Database)),
		Recipient: func() string {
			key, err := place.Read()
			if err != nil { // a key that this machine cannot open is backed up as it is
				return ""
			}
			id, err := key.Identity()
			if err != nil {
				return ""
			}
			return id.Recipient()
		},
	}
}

// opened is a decrypted file.
type opened struct {
	io.Reader
	io.Closer
}

// openFile decrypts a backup.
func (env Env) openFile(o *options) (io.ReadCloser, error) {
	text, err := regular.Read(o.key, maxKeys)
	if err != nil {
		return nil, err
	}
	keys, err := sealed.Identities(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.key, err)
	}
	f, size := io.NopCloser(env.Stdin), int64(0)
	if o.file != "-" {
		file, err := regular.Open(o.file)
		if err != nil {
			return nil, err
		}
		if info, err := file.Stat(); err == nil {
			size = info.Size()
		}
		f = file
	}
	r, err := sealed.OpenStream(f, keys)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", o.fileOr("the standard input"), err), f.Close())
	}
	return env.progress(o).follow(opened{r, f}, "reading "+o.fileOr("the standard input"), size), nil
}

// verify checks a backup, and shows what it contains.
func (env Env) verify(ctx context.Context, o *options) error {
	archive, err := env.openFile(o)
	if err != nil {
		return err
	}
	defer archive.Close()
	s, err := backup.Check(ctx, archive)
	if err != nil {
		return fmt.Errorf("%s: %w", o.fileOr("the standard input"), err)
	}
	env.printSummary(s)
	env.printNotes(env.Stdout, s)
	return nil
}

// printSummary prints what a backup contains.
func (env Env) printSummary(s *backup.Summary) {
	m := s.Manifest
	line := func(name, format string, args ...any) {
		fmt.Fprintf(env.Stdout, "%-9s %s\n", name+":", printable.Line(fmt.Sprintf(format, args...)))
	}
	line("node", "%s", m.Node)
	line("made", "%s by islet %s", m.Time.Format(time.RFC3339), m.Version)
	line("files", "%d, %d KiB; database %d KiB", s.Files, s.Bytes>>10, s.Database>>10)
	switch s.KeyProof {
	case backup.ProvenKey:
		line("key", "%s", m.Recipient)
	case backup.SealedKey:
		line("key", "not verified, because it is sealed to a TPM: islet restore compares it with %s", m.Recipient)
	default:
		line("key", "none, so this backup may be of anybody")
	}
	if len(m.Bundles) > 0 {
		what := "not in the backup: the node takes the same number again, and none below it"
		if s.Bundles > 0 {
			what = "in the backup"
		}
		line("bundles", "%s (%s)", describeNumbers(m.Bundles), what)
	}
}
