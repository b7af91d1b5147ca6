package setup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/k3s"
	"github.com/islet-edge/islet/internal/pattern"
	"github.com/islet-edge/islet/internal/setuprecord"
)

// Files returns the places of islet.yaml on a boot partition. The first one that exists is used.
func Files() []string { return []string{"/boot/firmware/islet.yaml", "/boot/islet.yaml"} }

// A Setup applies an islet.yaml to this machine.
type Setup struct {
	State string // the state directory
	Dir   string // the directory of the configuration, /etc/islet
	// Args are the flags of the agent on its command line. They override the files that Apply writes.
	Args []string
	// Host is the root directory of the machine. Load returns the configuration with which the service starts the agent now.
	Host fs.FS
	Load func(args []string) (*config.Config, []config.Notice, error)
	// Marks returns the serial numbers of the machine, and the addresses of its network cards.
	Marks func() (serials, cards []string)
	Now   func() time.Time
	Up    func() time.Duration // since the boot
	// Step is called before each step that changes a file. Tests end the process there.
	Step func()
}

// A Result says what Apply has done.
type Result struct {
	File    string // empty if there is none
	Applied bool   // the file was applied now
	Name    string // of the node; empty for the host name
	Server  string // of the cluster; may be empty
}

// A RefusedError means that islet.yaml cannot be used, and that nothing was changed. The agent starts with its previous settings. There is
// one exception: if the disk has failed between the renames of the targets, a part of them is in place. The next run then completes them.
type RefusedError struct {
	File string
	LED  string // of the file; may be empty
	// Unfit is true if the file is in use, and the agent cannot start on this machine. The error is the reason.
	Unfit bool
	err   error
}

// Error returns the mistakes, one on each line. Text that looks like a token is replaced, because a token in a wrong place may be reported
// as the name of an unknown field.
func (e *RefusedError) Error() string { return tokens().ReplaceAllString(e.err.Error(), "(a token)") }

var tokens = pattern.New(`[a-z0-9]{6}\.[a-z0-9]{16}`)

// Unwrap returns the cause.
func (e *RefusedError) Unwrap() error { return e.err }

// cardTime is the time after the boot in which a network card may appear.
const cardTime = 3 * time.Minute

// Apply applies the first of the files that exists, unless it is in use already. After a RefusedError, the agent may start. After any other
// error, Apply must be called again before the agent starts. A damaged or full disk causes a RefusedError, because the agent can run static
// pods on it.
func (s *Setup) Apply(files ...string) (Result, error) {
	unlock, err := lock(s.State)
	if err != nil {
		return Result{}, &RefusedError{err: fmt.Errorf("lock the state directory: %w", err)}
	}
	defer unlock()
	if err := k3s.CheckRestore(s.State); err != nil { // the restore replaces all files that Apply would write, also the record
		return Result{}, &RefusedError{err: err}
	}
	r, err := load(s.State)
	if err != nil {
		return Result{}, &RefusedError{err: err}
	}
	if err := r.commit(s.State, s.Step); err != nil {
		return Result{File: r.File}, s.refuse(r, &RefusedError{File: r.File, LED: r.LED, err: err})
	}
	for _, file := range files {
		if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return s.applyFile(file, r)
	}
	return s.keepMissing(r)
}

func (s *Setup) applyFile(file string, r *record) (Result, error) {
	out := Result{File: file, Name: r.Name, Server: r.Server}
	refused := &RefusedError{File: file}
	data, err := readFile(file, maxFile)
	isUsed := err == nil && r.isFile(data)
	isEdited := isUsed && r.isBesideChanged(file) // a change of a file that islet.yaml names counts as a change of islet.yaml
	if isUsed {
		// A file that is in use is applied again if the agent cannot start. It can start afterwards if this version makes other settings of
		// the file.
		if refused.err = s.unfit(); refused.err == nil && !isEdited {
			return out, s.keep(r, file, data)
		}
		refused.Unfit, refused.LED = refused.err != nil, r.LED
	}
	var next *record
	if err == nil {
		var src *source
		if src, err = parse(file, data); src != nil {
			refused.LED = src.board.LED
		}
		if err == nil {
			next, err = s.next(src, r, isUsed)
		}
	}
	isEarly := errors.Is(err, errNoCard) && r.File == "" && s.Up() < cardTime
	if err == nil {
		if r, err = s.write(r, next); err == nil {
			out.Applied, out.Name, out.Server = true, next.Name, next.Server
			return out, nil
		}
		err = errors.Join(refused.err, err)
	}
	if refused.err == nil || next != nil {
		refused.err = err
	} else if isEdited {
		refused.err = errors.Join(refused.err, err)
	}
	refusal := s.refuse(r, refused)
	if isEarly {
		return out, err // the caller reports the error
	}
	return out, refusal
}

// next returns the record of a file that is to be applied, with its targets. The parameter isUsed is set if the file is in use already.
func (s *Setup) next(src *source, r *record, isUsed bool) (*record, error) {
	secrets := src.secrets
	if isUsed {
		secrets = r.Secrets // some may be overwritten
		// A board that has joined keeps its credentials, as if their removal from the file were complete.
		src.tokenRemoved = src.tokenRemoved || r.Joined && s.exists(kubeconfigFile)
	}
	if err := s.checkChange(src, r); err != nil {
		return nil, err
	}
	name := r.Name
	if name == "" || r.Rule != src.board.Name || src.certName != "" {
		var err error
		if name, err = src.nodeName(s.Marks); err != nil {
			return nil, err
		}
	}
	if err := s.checkName(src, r, name); err != nil {
		return nil, err
	}
	_, joined := s.joinedK3s(r)
	p, err := s.plan(src, name, r, joined)
	if err != nil {
		return nil, err
	}
	next := &record{
		File: src.path, Digest: sum(mask(src.data, secrets)), Secrets: secrets, Time: s.Now().UTC(), Name: name, Rule: src.board.Name,
		LED: src.board.LED, Made: p.made, Beside: p.beside, Pending: p.targets, Joined: r.Joined && src.tokenRemoved,
	}
	if c := src.board.Cluster; c != nil {
		next.Server, next.CA, next.OwnKubeconfig = c.Server, c.CA+c.CAHash, c.Token == ""
		if c.CAHash != "" && !src.tokenRemoved {
			next.Discovery = &discovery{Server: c.Server, Hash: c.CAHash, Token: c.Token, Dir: s.Dir}
		}
	}
	return next, nil
}

// write writes the pending files of the next record. It returns the record on the disk, also after an error.
func (s *Setup) write(r, next *record) (*record, error) {
	if err := stage(s.Dir, next.Pending, s.Step); err != nil {
		return r, err
	}
	s.Step()
	if err := next.store(s.State); err != nil {
		unstage(s.Dir)
		return r, err
	}
	restoreLED(r.Refused)
	return next, next.commit(s.State, s.Step)
}

// checkChange compares a file with the command line and with the cluster that the board has joined.
func (s *Setup) checkChange(src *source, r *record) error {
	c := &checker{s: src}
	s.checkFlags(c, r)
	if unfinished, err := k3s.Complete(k3s.Root(s.State)); unfinished && err != nil {
		return errors.Join(append(c.errs, fmt.Errorf("islet join was interrupted, and its files cannot be completed: %w", err))...)
	}
	if d, m := s.joinedK3s(r); d != "" {
		if src.board.Cluster != nil {
			c.add("cluster", "this board has joined %s by islet join, and this file cannot move it to another cluster", m.APIServer)
		}
		return errors.Join(c.errs...)
	}
	if !s.exists(kubeconfigFile) {
		if src.tokenRemoved {
			c.add("cluster", "the secrets were removed from this file after they had been used: write new ones")
		}
		return errors.Join(c.errs...)
	}
	server, _ := s.joined(r)
	if k := src.board.Cluster; k == nil && server != "" && r.Server != "" {
		c.add("cluster", "this board has joined %s, and a file without a cluster cannot make it leave", server)
	} else if k != nil && server != "" && (k.Server != server || r.Server != "" && k.CA+k.CAHash != r.CA) {
		c.add("cluster.server", "this board has joined %s with its CA, and this file cannot move it to another cluster", server)
	}
	return errors.Join(c.errs...)
}

// checkFlags adds the settings that a flag would replace.
func (s *Setup) checkFlags(c *checker, r *record) {
	b, n := &c.s.board, c.s.board.Network
	listed := s.baseFlags(r)
	for _, f := range []struct {
		flag, field string
		isSet       bool // in islet.yaml
		isMade      bool // addFlags adds the flag to the file of flags, after one that was there
	}{
		{"--config", "kubeletConfiguration", b.KubeletConfiguration != "", false},
		{"--config", "network", n.PodCIDR != "" || n.ClusterDomain != "" || len(n.ClusterDNS) > 0, false},
		{"--pod-cidr", "network.podCIDR", n.PodCIDR != "", false},
		{"--cluster-dns", "network.clusterDNS", len(n.ClusterDNS) > 0, false},
		{"--cluster-domain", "network.clusterDomain", n.ClusterDomain != "", false},
		{"--edge-config", "edgeConfiguration", b.EdgeConfiguration != "" || b.Bundle != nil || b.Update != nil, false},
		{"--kubeconfig", "cluster", b.Cluster != nil, true},
		{"--bootstrap-kubeconfig", "cluster", b.Cluster != nil, true},
		{"--hostname-override", "name", b.Name != "" || c.s.certName != "", true},
	} {
		const message = "%s has %s, which replaces the setting of this file: remove it from there"
		if f.isSet && !f.isMade && config.HasFlag(listed, f.flag) {
			c.add(f.field, message, filepath.Join(s.Dir, config.FlagsFile), f.flag)
		}
		if f.isSet && config.HasFlag(s.Args, f.flag) {
			c.add(f.field, message, "ISLET_ARGS", f.flag)
		}
	}
}

// baseFlags returns the lines of the flags file that this package did not write.
func (s *Setup) baseFlags(r *record) (lines []string) {
	text, _, _ := (&plan{old: r}).base(filepath.Join(s.Dir, config.FlagsFile)) // newPlan reports the error
	for line := range strings.Lines(string(text)) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// checkName returns an error if a board that has joined would get another name.
func (s *Setup) checkName(src *source, r *record, name string) error {
	server, old := s.joined(r)
	if server == "" || name == old || r.Server == "" && (name == "" && r.Name == "" || old == "") {
		return nil
	}
	return config.NewFileError(src.path, src.data, "name", "this board has joined as %q, and keeps that name", old)
}

// joined returns the cluster that the board has joined, and its name there. Both are empty if it has not joined. The command islet join
// names a directory in edge.yaml. Otherwise, the agent writes a kubeconfig when it has a certificate. The kubeconfig is right even if the
// record was lost, or if the image had a kubeconfig.
func (s *Setup) joined(r *record) (server, name string) {
	if d, m := s.joinedK3s(r); d != "" {
		return m.APIServer, m.Node
	}
	if r.OwnKubeconfig && !r.Joined || !s.exists(kubeconfigFile) {
		return "", ""
	}
	server, name, err := link.Membership(filepath.Join(s.Dir, kubeconfigFile))
	if err != nil {
		server = r.Server
	}
	if r.Server != "" {
		name = r.Name
	}
	return server, name
}

func (s *Setup) exists(name string) bool {
	_, err := os.Lstat(filepath.Join(s.Dir, name))
	return err == nil
}

// lock prevents another change of the record at the same time. The kernel releases the lock when the process ends.
func lock(state string) (unlock func(), err error) {
	if err := os.MkdirAll(state, 0o711); err != nil {
		return nil, err
	}
	d, err := k3s.AwaitState(state)
	return func() { d.Close() }, err
}

// refuse stores why a file cannot be used, if it was not stored before, and lets the LED beat.
func (s *Setup) refuse(r *record, e *RefusedError) error {
	next := &setuprecord.Refusal{File: e.File, Why: shorten(e.Error()), Time: s.Now().UTC(), Unfit: e.Unfit}
	next.LED, next.Before = beat(e.LED)
	if old := r.Refused; old != nil {
		if old.LED == next.LED {
			next.Before = old.Before
		}
		if old.Why == next.Why && old.File == next.File && old.LED == next.LED && old.Unfit == next.Unfit {
			return e
		}
	}
	r.Refused = next
	return errors.Join(e, r.store(s.State))
}

// keep updates the record for a file that is in use already. The record has to change if another file was refused meanwhile, or if the file
// was copied to the boot partition again with its secrets.
func (s *Setup) keep(r *record, file string, data []byte) error {
	isNew := r.adoptBeside(file, data)
	again := r.Removed && !bytes.Equal(mask(data, r.Secrets), data)
	if r.Refused == nil && !again {
		if isNew {
			s.Step()
			_ = r.store(s.State) // the next run adds the digests again
		}
		return nil
	}
	r.Removed = r.Removed && !again
	return s.forgetRefusal(r)
}

// keepMissing updates the record if no islet.yaml is there: the file was deleted, its partition is not mounted, or a person has named
// another file. If the agent cannot start on this machine, keepMissing returns the reason. A refusal stays only if it is about a file that
// exists.
func (s *Setup) keepMissing(r *record) (Result, error) {
	if r.File != "" {
		if err := s.unfit(); err != nil {
			out := Result{File: r.File, Name: r.Name, Server: r.Server}
			return out, s.refuse(r, &RefusedError{File: r.File, LED: r.LED, Unfit: true, err: err})
		}
	}
	if r.Refused == nil {
		return Result{}, nil
	}
	if _, err := os.Lstat(r.Refused.File); !r.Refused.Unfit && !errors.Is(err, fs.ErrNotExist) {
		return Result{}, nil
	}
	return Result{}, s.forgetRefusal(r)
}

// forgetRefusal removes the refusal from the record, and stores it.
func (s *Setup) forgetRefusal(r *record) error {
	restoreLED(r.Refused)
	r.Refused = nil
	s.Step()
	if err := r.store(s.State); err != nil {
		return &RefusedError{File: r.File, err: err}
	}
	return nil
}
