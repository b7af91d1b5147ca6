package config

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// Config is the whole configuration of an agent, validated. Nobody changes it.
type Config struct {
	// Kubelet has every default set; pointers to scalars are never nil, except
	// where nil has a meaning of its own.
	Kubelet kubelet.KubeletConfiguration
	// Edge has every default set; paths are absolute.
	Edge EdgeConfiguration
	// Dirs are where the agent keeps what is its own; all absolute.
	Dirs Dirs
	// Node is how this machine appears.
	Node Node
	// PodLogQuota bounds the logs of a pod, FlashBudget what is written a day, in bytes; 0: no bound.
	PodLogQuota, FlashBudget int64
	// Dead says which ended containers are kept.
	Dead Dead

	// Kubeconfig and BootstrapKubeconfig lead to the API server. Without either
	// the node stands alone.
	Kubeconfig, BootstrapKubeconfig string
	// CredentialProviderConfig and CredentialProviderBinDir are for the image
	// credential provider plugins; empty: none.
	CredentialProviderConfig, CredentialProviderBinDir string

	// PodCIDRs are where the built-in network takes pod addresses from until a
	// control plane says otherwise: one, or one of each family.
	PodCIDRs []netip.Prefix
	// LogLevel is --v on slog's scale: klog's V(n) is level -n.
	LogLevel slog.Level
	// ContainerLogMaxSize is the parsed containerLogMaxSize, in bytes.
	ContainerLogMaxSize int64
	// CPUPeriod is of CPU quotas, in microseconds; negative: CPU limits are not
	// enforced.
	CPUPeriod int64
	// CrashMax is the longest back-off of a container that ends again and again.
	CrashMax time.Duration
	// SwapUnasked says that the node stands alone and nothing sets failSwapOn: swap
	// is then worth a warning, and no reason not to start.
	SwapUnasked bool

	// RuntimeEndpoint and ImageEndpoint are the sockets of the runtime that containers run
	// in; empty: islet's own.
	RuntimeEndpoint, ImageEndpoint string

	flags []string
}

// Flags are all flags with an effect as name=value, in order. Where a file sets what a
// flag can, the value is the file's; what may hold a password is CLASSIFIED.
func (c *Config) Flags() []string { return c.flags }

// IDsPerPod is how many user IDs a pod with a user namespace has.
func (c *Config) IDsPerPod() uint32 {
	if u := c.Kubelet.UserNamespaces; u != nil && u.IDsPerPod != nil && *u.IDsPerPod > 0 {
		return uint32(*u.IDsPerPod) // validated
	}
	return 65536
}

// Alone says whether the node has no control plane.
func (c *Config) Alone() bool { return c.Kubeconfig == "" && c.BootstrapKubeconfig == "" }

// Dirs are the directories of one agent. Two agents with different ones do not
// meet.
type Dirs struct {
	Root  string // pods, volumes, plugins; /var/lib/kubelet
	State string // database, containerd, images; /var/lib/islet
	Run   string // sockets, pins; /run/islet
	Cert  string // pki under Root unless given

	LogLinks string // links to containers' logs; /var/log/containers
}

// Node is how this machine appears to a control plane.
type Node struct {
	Name          string       // lower case
	IPs           []netip.Addr // --node-ip; empty: those of the default route. Unspecified: of that family
	Labels        map[string]string
	CloudProvider string // "" or "external"
}

// Dead bounds what is kept of ended containers.
type Dead struct {
	MinAge          time.Duration
	MaxPerContainer int32 // of one container of one pod
	Max             int32 // of all; negative: no bound
}

// A Notice tells the user, once, that something given has no effect.
type Notice struct {
	Subject string // --flag, or file: field
	Text    string // why
}

// String is the line to log.
func (n Notice) String() string { return n.Subject + " has no effect: " + n.Text }

// Load makes the configuration of the command line (without the program's
// name), the files it names and the defaults. Flags are stronger than drop-ins,
// these than the file; of a flag given twice the last counts, but lists and maps
// add up. The error is *Asked for --help and --version, else it holds a
// *FileError or field.Error per mistake, joined.
func Load(args []string) (*Config, []Notice, error) {
	first := settings{KubeletConfiguration: defaultKubelet(), Edge: defaultEdge(), Flags: defaultOptions()}
	if err := newFlagSet(&first).parse(args); err != nil {
		return nil, nil, err
	}
	kube, docs, err := loadKubelet(first.Flags.Config, first.Flags.ConfigDir)
	if err != nil {
		return nil, nil, err
	}
	edge, err := loadEdge(first.Flags.EdgeConfig)
	if err != nil {
		return nil, nil, err
	}
	// The second time the flags go over what the files said.
	s := settings{KubeletConfiguration: kube, Edge: edge, Flags: defaultOptions()}
	fs := newFlagSet(&s)
	if err := fs.parse(args); err != nil {
		return nil, nil, err
	}
	mergeGates(&s.KubeletConfiguration, kube.FeatureGates)
	idle := unused(&s)
	c, errs := derive(&s)
	if c.Alone() && !given("failSwapOn", fs, docs) {
		c.Kubelet.FailSwapOn, c.SwapUnasked = new(false), true
	}
	if err := errors.Join(append(errs, validate(&s)...)...); err != nil {
		return nil, nil, err
	}
	s.KubeletConfiguration = c.Kubelet
	c.flags = fs.values()
	return c, append(notices(c, fs, docs), idle...), nil
}

// given says whether the command line or a file sets a field of the top level,
// also to its default.
func given(path string, fs flagSet, docs []document) bool {
	by := false
	fs.Visit(func(f *pflag.Flag) { by = by || fs.rows[f.Name].field == path })
	for _, doc := range docs {
		var fields map[string]json.RawMessage
		if json.Unmarshal(doc.json, &fields) == nil && len(fields[path]) > 0 && string(fields[path]) != "null" {
			by = true
		}
	}
	return by
}

func loadEdge(file string) (EdgeConfiguration, error) {
	var e EdgeConfiguration
	if file != "" {
		doc, err := readDocument(file, EdgeAPIVersion, EdgeKind, &e)
		if err != nil {
			return e, err
		}
		absolute(e.paths(), filepath.Dir(doc.file))
	}
	setEdgeDefaults(&e)
	return e, nil
}

// mergeGates keeps the feature gates of the files that no flag names.
func mergeGates(c *kubelet.KubeletConfiguration, files map[string]bool) {
	for name, on := range files {
		if _, given := c.FeatureGates[name]; !given {
			c.FeatureGates[name] = on
		}
	}
}
