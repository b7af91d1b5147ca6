package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/islet-edge/islet/internal/k3s"
)

// DefaultPodCIDR is the pod network if none is configured.
const DefaultPodCIDR = "10.42.0.0/24"

func setEdgeDefaults(e *EdgeConfiguration) {
	fillZeroFields(reflect.ValueOf(e).Elem(), reflect.ValueOf(defaultEdge()))
}

// deriveConfig returns the Config with the parsed settings and the values that are derived from them. The
// Config is complete only if there are no errors.
func deriveConfig(s *settings) (*Config, []error) {
	var errs []error
	k, o := &s.KubeletConfiguration, &s.Flags
	c := &Config{
		Node: Node{Labels: o.NodeLabels, CloudProvider: o.CloudProvider},
		DeadLimit: DeadLimit{MinAge: o.MinimumContainerTTL.Duration, MaxPerContainer: o.MaxDeadPerContainer,
			Max: o.MaxDeadContainers},
		Kubeconfig:               o.Kubeconfig,
		BootstrapKubeconfig:      o.BootstrapKubeconfig,
		CredentialProviderConfig: o.ImageCredentialProviderConfig,
		CredentialProviderBinDir: o.ImageCredentialProviderBinDir,
		LogLevel:                 slog.Level(-int(k.Logging.Verbosity)),
	}
	for _, step := range []func() error{
		func() (err error) { c.Dirs, err = deriveDirs(o); return },
		func() (err error) { c.Node.Name, err = nodeName(o.HostnameOverride); return },
		func() (err error) { c.Node.IPs, err = nodeIPs(o.NodeIP); return },
		func() (err error) { c.PodCIDRs, err = podCIDRs(k.PodCIDR); return },
	} {
		if err := step(); err != nil {
			errs = append(errs, err)
		}
	}
	if c.Standalone() && s.Edge.K3s.Directory != "" {
		c.Kubeconfig = k3s.Directory(s.Edge.K3s.Directory).Kubeconfig()
	}
	if s.Edge.ImagesDir == "" {
		s.Edge.ImagesDir = filepath.Join(c.Dirs.State, "images")
	}
	if isExternal(k.ContainerRuntimeEndpoint, c.Dirs.Run) {
		c.RuntimeEndpoint, c.ImageEndpoint = k.ContainerRuntimeEndpoint, cmp.Or(k.ImageServiceEndpoint, k.ContainerRuntimeEndpoint)
		s.Edge.CRISocket = "" // the external runtime has its own socket
	} else {
		s.Edge.CRISocket = cmp.Or(s.Edge.CRISocket, socketInRunDir(k.ContainerRuntimeEndpoint, c.Dirs.Run))
	}
	deriveMachineWide(k, &c.Dirs)
	c.PodLogQuota, c.FlashBudget = bytesOf(s.Edge.PodLogQuota), bytesOf(s.Edge.FlashBudget)
	if size, err := resource.ParseQuantity(k.ContainerLogMaxSize); err == nil { // validate reports the error
		c.ContainerLogMaxSize = size.Value()
	}
	c.CPUPeriod = k.CPUCFSQuotaPeriod.Microseconds()
	if !*k.CPUCFSQuota {
		c.CPUPeriod = -1
	}
	if most := k.CrashLoopBackOff.MaxContainerRestartPeriod; most != nil { // nil if the feature gate of this field is off
		c.CrashMax = most.Duration
	}
	c.Kubelet, c.Edge = *k, s.Edge
	return c, errs
}

// socketInRunDir returns the path of a CRI endpoint in the run directory, or "" for other
// endpoints. islet serves CRI at such an endpoint, because no other runtime can have a socket in
// islet's run directory. kubeadm sets such an endpoint with --cri-socket.
func socketInRunDir(endpoint, run string) string {
	path := filepath.Clean(strings.TrimPrefix(endpoint, "unix://"))
	if filepath.Dir(path) != run {
		return ""
	}
	return path
}

func deriveDirs(o *options) (Dirs, error) {
	d := Dirs{Root: o.RootDir, State: o.StateDir, Run: o.RunDir, Cert: cmp.Or(o.CertDir, filepath.Join(o.RootDir, "pki"))}
	for _, p := range []struct {
		flag string
		dir  *string
	}{{"root-dir", &d.Root}, {"state-dir", &d.State}, {"run-dir", &d.Run}, {"cert-dir", &d.Cert}} {
		if *p.dir == "" {
			return d, fmt.Errorf("--%s must not be empty", p.flag)
		}
		abs, err := filepath.Abs(*p.dir)
		if err != nil {
			return d, fmt.Errorf("--%s: %w", p.flag, err)
		}
		*p.dir = abs
	}
	return d, nil
}

// deriveMachineWide sets the paths that are the same for all kubelets of a machine: pod logs, links
// to them, and cgroups. An agent with its own state directory also has its own pod logs, links and
// cgroups, unless the user sets them.
func deriveMachineWide(k *kubelet.KubeletConfiguration, d *Dirs) {
	state := d.State
	own := state != defaultOptions().StateDir
	if k.PodLogsDir == "" {
		k.PodLogsDir = "/var/log/pods"
		if own {
			k.PodLogsDir = filepath.Join(state, "pod-logs")
		}
	}
	if own {
		d.LogLinks = filepath.Join(state, "container-logs")
	} else {
		d.LogLinks = "/var/log/containers"
	}
	if k.CgroupRoot == "" && own {
		sum := sha256.Sum256([]byte(state))
		k.CgroupRoot = "/islet-" + hex.EncodeToString(sum[:4])
	}
}

// nodeName returns the override or the host name, trimmed and in lower case like a kubelet's node name. The
// name is validated, because the names and UIDs of static pods depend on it.
func nodeName(override string) (string, error) {
	name, from := override, "--hostname-override"
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			return "", fmt.Errorf("read the host's name: %w", err)
		}
		from = "the host's name (set another or use --hostname-override)"
	}
	name = strings.ToLower(strings.TrimSpace(name))
	if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
		return "", fmt.Errorf("%s: %q is not a valid node name: %s", from, name, strings.Join(errs, "; "))
	}
	return name, nil
}

// nodeIPs parses --node-ip: one address, or one for each IP family.
func nodeIPs(s string) ([]netip.Addr, error) {
	var ips []netip.Addr
	for _, part := range splitTrimmed(s, ",") {
		ip, err := netip.ParseAddr(part)
		if err != nil {
			return nil, fmt.Errorf("--node-ip: %q is not an IP address", part)
		}
		ips = append(ips, ip.Unmap())
	}
	if len(ips) > 2 || len(ips) == 2 && ips[0].Is4() == ips[1].Is4() {
		return nil, fmt.Errorf("--node-ip: %q: want one address, or one of each family", s)
	}
	if len(ips) == 2 && (ips[0].IsUnspecified() || ips[1].IsUnspecified()) {
		return nil, fmt.Errorf("--node-ip: %q: an unspecified address stands alone", s)
	}
	return ips, nil
}

// podCIDRs parses podCIDR: one prefix, or one for each IP family.
func podCIDRs(s string) ([]netip.Prefix, error) {
	if strings.TrimSpace(s) == "" {
		s = DefaultPodCIDR
	}
	var cidrs []netip.Prefix
	for _, part := range splitTrimmed(s, ",") {
		p, err := netip.ParsePrefix(part)
		if err != nil {
			return nil, fmt.Errorf("podCIDR: Invalid value: %q: not a network such as %s", part, DefaultPodCIDR)
		}
		p = p.Masked()
		if p.Addr().BitLen()-p.Bits() < 3 {
			return nil, fmt.Errorf("podCIDR: Invalid value: %q: too small for pods", part)
		}
		cidrs = append(cidrs, p)
	}
	if len(cidrs) > 2 || len(cidrs) == 2 && cidrs[0].Addr().Is4() == cidrs[1].Addr().Is4() {
		return nil, fmt.Errorf("podCIDR: Invalid value: %q: want one network, or one of each family", s)
	}
	return cidrs, nil
}
