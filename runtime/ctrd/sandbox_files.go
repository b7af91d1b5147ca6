package ctrd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/mounts"
	"github.com/islet-edge/islet/runtime/ocispec"
)

// shmMode is the mode of /dev/shm. Like in /tmp, any user of the pod may create files there.
const shmMode = 0o777 | os.ModeSticky

// filesLimit returns the mount options that limit the total size of a pod's files and /dev/shm. The
// size is the default of every container runtime for /dev/shm. There is one inode for each page. A
// pod that uses the host's /dev/shm needs space only for the other files.
func filesLimit(s *sandbox) string {
	if s.hostIPC() {
		return "mode=0755,size=1m,nr_inodes=64"
	}
	return "mode=0755,size=64m,nr_inodes=16k"
}

// makeSandboxFiles creates the files that the containers of a sandbox share: /etc/hostname,
// /etc/resolv.conf, /dev/shm, and /etc/hosts for containers whose configuration does not mount one.
// Containers can write to all of these files. So the files are in a tmpfs of limited size for each
// sandbox, and not in the file system of the run directory:
//
//	/run/islet/sandboxes/ID        tmpfs, 64 MiB
//	├── hostname resolv.conf hosts
//	└── shm/                       mode 1777, /dev/shm of the containers
func (r *Runtime) makeSandboxFiles(s *sandbox) error {
	dir := filepath.Join(r.dirs.files, s.rec.ID)
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, os.ErrExist) {
		if err := r.removeSandboxFiles(s.rec.ID); err != nil {
			return err
		}
	}
	if err != nil { // the directory or its parent was missing
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	hostname := s.config.GetHostname()
	if hostname == "" {
		hostname, _ = os.Hostname()
	}
	resolv, err := resolvConf(s.config.GetDnsConfig())
	if err != nil {
		return err
	}
	hosts, err := os.ReadFile("/etc/hosts")
	if err != nil || !s.hostNetwork() {
		hosts = []byte("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n")
	}
	if err := unix.Mount("shm", dir, "tmpfs", unix.MS_NOEXEC|unix.MS_NOSUID|unix.MS_NODEV, filesLimit(s)); err != nil {
		return fmt.Errorf("mount a tmpfs at %s: %w", dir, err)
	}
	for name, b := range map[string][]byte{"hostname": []byte(hostname + "\n"), "resolv.conf": resolv, "hosts": hosts} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, b, 0o644), s.chown(path)); err != nil {
			return err
		}
	}
	if s.hostIPC() {
		return nil
	}
	shm := filepath.Join(dir, "shm")
	if err := os.Mkdir(shm, 0o700); err != nil {
		return err
	}
	return errors.Join(os.Chmod(shm, shmMode), s.chown(shm)) // the mode must not depend on the umask
}

// resolvConf returns the content of a pod's resolv.conf for a DNS configuration. If that is nil, it returns the content
// of the host's file.
func resolvConf(d *api.DNSConfig) ([]byte, error) {
	if d == nil {
		b, err := os.ReadFile("/etc/resolv.conf")
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		return b, err
	}
	var b strings.Builder
	if len(d.GetSearches()) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(d.GetSearches(), " "))
	}
	for _, s := range d.GetServers() {
		fmt.Fprintf(&b, "nameserver %s\n", s)
	}
	if len(d.GetOptions()) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(d.GetOptions(), " "))
	}
	return []byte(b.String()), nil
}

// removeSandboxFiles removes the files that makeSandboxFiles created. It also removes the files of
// an earlier version of islet, which mounted only /dev/shm.
func (r *Runtime) removeSandboxFiles(id string) error {
	dir := filepath.Join(r.dirs.files, id)
	for _, at := range []string{filepath.Join(dir, "shm"), dir} {
		if err := unmount(at); err != nil {
			return err
		}
	}
	return mounts.RemoveAll(dir)
}

// filesOf returns the paths of the sandbox's files that its containers mount.
func (r *Runtime) filesOf(s *sandbox) ocispec.Files {
	dir := filepath.Join(r.dirs.files, s.rec.ID)
	f := ocispec.Files{
		Hosts: filepath.Join(dir, "hosts"), Hostname: filepath.Join(dir, "hostname"),
		Resolv: filepath.Join(dir, "resolv.conf"), Shm: filepath.Join(dir, "shm"),
	}
	if s.hostIPC() {
		f.Shm = "/dev/shm"
	}
	return f
}

// unmount detaches all mounts at path. It is not an error if nothing is mounted there.
func unmount(path string) error {
	for {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
}
