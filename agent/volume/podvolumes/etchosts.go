package podvolumes

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/untrusted"
)

const (
	etcHostsPath = "/etc/hosts"
	maxHosts     = 1 << 20 // maximum size of the host's file, which pods in the host network use
)

// etcHosts writes the pod's /etc/hosts and mounts it. It does nothing if the container mounts a volume there. The
// addresses come from the pod's status, which contains them when the sandbox runs.
//
// https://kubernetes.io/docs/tasks/network/customize-hosts-file-for-pods/
func (v *Volumes) etcHosts(pod *v1.Pod, ctr *v1.Container, out *api.ContainerConfig) error {
	own := slices.ContainsFunc(ctr.VolumeMounts, func(m v1.VolumeMount) bool { return filepath.Clean(m.MountPath) == etcHostsPath })
	if own || len(pod.Status.PodIPs) == 0 && !pod.Spec.HostNetwork {
		return nil
	}
	content := podHosts(pod, v.cfg.Hostname)
	if pod.Spec.HostNetwork {
		host, err := untrusted.ReadInRoot("/", etcHostsPath, maxHosts)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("read the host's %s: %w", etcHostsPath, err)
		}
		content = append([]byte("# Kubernetes-managed hosts file (host network).\n"), host...)
	}
	content = append(content, hostAliases(pod)...)
	path := filepath.Join(v.podDir(pod.UID), "etc-hosts")
	v.hostsLock.Lock()
	defer v.hostsLock.Unlock()
	// Containers can write to an existing file, so its content is not trusted.
	if old, err := untrusted.ReadFile(v.podDir(pod.UID), "etc-hosts", int64(len(content))); err != nil || !bytes.Equal(old, content) {
		if err := replaceFile(path, content); err != nil {
			return fmt.Errorf("write the pod's %s: %w", etcHostsPath, err)
		}
	}
	out.Mounts = append(out.Mounts, &api.Mount{ContainerPath: etcHostsPath, HostPath: path, SelinuxRelabel: true})
	return nil
}

func podHosts(pod *v1.Pod, hostname func(*v1.Pod) (host, fqdn string)) []byte {
	var b bytes.Buffer
	b.WriteString("# Kubernetes-managed hosts file.\n" +
		"127.0.0.1\tlocalhost\n" +
		"::1\tlocalhost ip6-localhost ip6-loopback\n" +
		"fe00::0\tip6-localnet\n" +
		"fe00::0\tip6-mcastprefix\n" +
		"fe00::1\tip6-allnodes\n" +
		"fe00::2\tip6-allrouters\n")
	host, fqdn := hostname(pod)
	for _, ip := range pod.Status.PodIPs {
		if fqdn != "" {
			fmt.Fprintf(&b, "%s\t%s\t%s\n", ip.IP, fqdn, host)
		} else {
			fmt.Fprintf(&b, "%s\t%s\n", ip.IP, host)
		}
	}
	return b.Bytes()
}

func hostAliases(pod *v1.Pod) []byte {
	if len(pod.Spec.HostAliases) == 0 {
		return nil
	}
	var b bytes.Buffer
	b.WriteString("\n# Entries added by HostAliases.\n")
	for _, a := range pod.Spec.HostAliases {
		fmt.Fprintf(&b, "%s\t%s\n", a.IP, strings.Join(a.Hostnames, "\t"))
	}
	return b.Bytes()
}

// replaceFile replaces a file atomically. Running containers keep the old file mounted.
func replaceFile(path string, content []byte) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, content, 0o644); err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o644); err != nil { // the umask may have changed WriteFile's mode
		return err
	}
	return os.Rename(tmp, path)
}
