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

// shmMode is the mode of /tmp: any user of a pod may write to /dev/shm.
const shmMode = 0o777 | os.ModeSticky

// filesLimit returns the mount options that limit a pod's files and /dev/shm together. The size is
// every container runtime's default for /dev/shm, with one inode per page. A pod that uses the
// host's /dev/shm needs space only for its files.
func filesLimit(s *sandbox) string {
	if s.hostIPC() {
		return "mode=0755,size=1m,nr_inodes=64"
	}
	return "mode=0755,size=64m,nr_inodes=16k"
}

// makeSandboxFiles creates the files that the containers of a sandbox share: /etc/hostname,
// /etc/resolv.conf, /etc/hosts (for containers whose configuration mounts none) and /dev/shm.
// Containers can write to all of these, so they are in a size-limited file system of the sandbox,
// not in that of the run directory:
//
//	/run/islet/sandboxes/ID        tmpfs, 64 MiB
//	├── hostname resolv.conf hosts
//	└── shm/                       mode 1777, /dev/shm of the containers
func (r *Runtime) makeSandboxFiles(s *sandbox) error {
	if err := r.removeSandboxFiles(s.rec.ID); err != nil {
		return err
	}
	dir := filepath.Join(r.dirs.files, s.rec.ID)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
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
	return errors.Join(os.Chmod(shm, shmMode), s.chown(shm)) // whatever the umask is
}

// resolvConf returns the content of a pod's resolv.conf; without a configuration it is the host's.
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

// removeSandboxFiles removes the files of makeSandboxFiles, including those of an earlier version,
// which mounted only /dev/shm.
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

// unmount detaches all mounts at path. If nothing is mounted there, that is success.
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
