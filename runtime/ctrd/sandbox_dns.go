package ctrd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// These files are beside a sandbox's resolv.conf. No container can see them. writtenResolv is a copy of the last resolv.conf that UpdateDNS
// has written, and nextResolv of the one that it is writing. The copy is written first: after an interruption at any point, the content of
// resolv.conf is still known as islet's own.
//
//	write nextResolv --> overwrite resolv.conf --> rename nextResolv to writtenResolv
const (
	writtenResolv = "resolv.conf.written"
	nextResolv    = "resolv.conf.next"
)

// UpdateDNS writes the DNS configuration that the function dns returns into the resolv.conf of each sandbox that is ready. A sandbox stays
// unchanged if the function returns nil, or if a container has changed the file. The function gets metadata that it must not change.
func (r *Runtime) UpdateDNS(dns func(*api.PodSandboxMetadata) *api.DNSConfig) (err error) {
	r.mu.Lock()
	var all []*sandbox
	for _, s := range r.sandboxes {
		if s.ready {
			all = append(all, s)
		}
	}
	r.mu.Unlock()
	for _, s := range all {
		if d := dns(s.config.GetMetadata()); d != nil {
			err = errors.Join(err, r.updateResolv(s, d))
		}
	}
	return err
}

// updateResolv rewrites a sandbox's resolv.conf in place, because the containers have a bind mount of this inode. The sandbox's lock is not
// needed: the files of a stopped sandbox are gone, or detached from the file system.
func (r *Runtime) updateResolv(s *sandbox, d *api.DNSConfig) error {
	want, err := resolvConf(d)
	if err != nil {
		return err
	}
	first, err := resolvConf(s.config.GetDnsConfig())
	if err != nil {
		return err
	}
	err = rewriteResolv(filepath.Join(r.dirs.files, s.rec.ID), first, want)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // the files of a stopped sandbox are gone
		return fmt.Errorf("sandbox %s: %w", s.rec.ID, err)
	}
	return nil
}

// rewriteResolv rewrites the resolv.conf in a directory, unless a container has changed it. The parameter first is its content at the start
// of the sandbox.
func rewriteResolv(dir string, first, want []byte) error {
	f, err := os.OpenFile(filepath.Join(dir, "resolv.conf"), os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	written, next := filepath.Join(dir, writtenResolv), filepath.Join(dir, nextResolv)
	last, err := os.ReadFile(written)
	if err != nil {
		last = first
	}
	interrupted, err := os.ReadFile(next)
	if err != nil {
		interrupted = last
	}
	limit := max(len(first), len(last), len(interrupted), len(want)) + 1 // a longer file is a container's
	content, err := io.ReadAll(io.LimitReader(f, int64(limit)))
	if err != nil {
		return err
	}
	n := min(len(interrupted), len(last))
	if !bytes.Equal(content, last) && bytes.Equal(content, slices.Concat(interrupted, last[n:])) { // it was written, but not truncated
		if err := f.Truncate(int64(len(interrupted))); err != nil {
			return err
		}
		content = interrupted
	}
	if bytes.Equal(content, interrupted) && !bytes.Equal(interrupted, last) {
		if err := os.Rename(next, written); err != nil {
			return err
		}
		last = interrupted
	}
	if bytes.Equal(content, want) && bytes.Equal(last, want) || !bytes.Equal(content, want) && !bytes.Equal(content, last) &&
		!bytes.Equal(content, first) {
		return nil
	}
	if err := os.WriteFile(next, want, 0o600); err != nil {
		return err
	}
	if err := overwrite(f, want); err != nil {
		return err
	}
	return os.Rename(next, written)
}

// overwrite replaces the content of a file. A reader never sees an empty file. If the file system is full, the former content stays.
func overwrite(f *os.File, b []byte) error {
	if len(b) > 0 {
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, int64(len(b)))
		if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return err
		}
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(b)))
}
