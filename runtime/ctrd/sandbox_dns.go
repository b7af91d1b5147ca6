package ctrd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// writtenResolv is the name of a copy of the last resolv.conf that UpdateDNS has written, beside the file itself. No container can see the
// copy.
const writtenResolv = "resolv.conf.written"

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
	dir := filepath.Join(r.dirs.files, s.rec.ID)
	written := filepath.Join(dir, writtenResolv)
	f, err := os.OpenFile(filepath.Join(dir, "resolv.conf"), os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer f.Close()
	last := first
	if b, err := os.ReadFile(written); err == nil {
		last = b
	}
	content, err := io.ReadAll(io.LimitReader(f, int64(max(len(first), len(last), len(want)))+1)) // a longer file is a container's
	if err != nil {
		return fmt.Errorf("sandbox %s: %w", s.rec.ID, err)
	}
	if !bytes.Equal(content, want) {
		if !bytes.Equal(content, last) && !bytes.Equal(content, first) {
			return nil
		}
		if err := overwrite(f, want); err != nil {
			return fmt.Errorf("sandbox %s: %w", s.rec.ID, err)
		}
	}
	if bytes.Equal(last, want) {
		return nil
	}
	return os.WriteFile(written, want, 0o600)
}

// overwrite replaces the content of a file. A reader never sees an empty file, and after an error the former content is still there.
func overwrite(f *os.File, b []byte) error {
	if _, err := f.WriteAt(b, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(b)))
}
