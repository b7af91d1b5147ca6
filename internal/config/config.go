package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
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
	files *ownFiles
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

// LooksEvery is about how often the node looks at what nobody tells it of, such as claims
// whose volumes may grow. A kubelet does when it looks at a pod, which is syncFrequency and
// up to half of it later.
func (c *Config) LooksEvery() time.Duration {
	return max(cmp.Or(c.Kubelet.SyncFrequency.Duration, time.Minute), time.Second) * 4 / 3
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
func Load(args []string) (*Config, []Notice, error) { return LoadWith(args, nil) }

// LoadWith is Load for a node that may have been sent a configuration: sent is asked for
// it with the directories of the command line. Its KubeletConfiguration counts instead of
// the --config file's, but for what belongs to the node (see Bound), its EdgeConfiguration
// instead of that of --edge-config. Drop-ins and flags are stronger, as ever.
func LoadWith(args []string, sent func(Dirs) (*Sent, error)) (*Config, []Notice, error) {
	first := settings{KubeletConfiguration: defaultKubelet(), Edge: defaultEdge(), Flags: defaultOptions()}
	if err := newFlagSet(&first).parse(args); err != nil {
		return nil, nil, err
	}
	over, err := sentTo(&first.Flags, sent)
	if err != nil {
		return nil, nil, err
	}
	own := newOwnFiles(&first.Flags)
	kube, docs, err := loadKubelet(own, first.Flags.Config, first.Flags.ConfigDir, over)
	if err != nil {
		return nil, nil, err
	}
	edge, err := loadEdge(own, first.Flags.EdgeConfig, over)
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
	small := suit(&c.Kubelet, memory("/proc/meminfo"), func(field string) bool { return given(field, fs, docs) })
	if err := errors.Join(append(errs, validate(&s)...)...); err != nil {
		return nil, nil, err
	}
	s.KubeletConfiguration = c.Kubelet
	c.flags, c.files = fs.values(), own
	return c, slices.Concat(notices(c, fs, docs), idle, small), nil
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

func loadEdge(own *ownFiles, file string, sent *Sent) (EdgeConfiguration, error) {
	var e EdgeConfiguration
	var doc document
	if file != "" {
		var err error
		if doc, err = readDocument(own, file, EdgeAPIVersion, EdgeKind, &e); err != nil {
			return e, err
		}
		absolute(e.paths(), filepath.Dir(doc.file))
	}
	if sent != nil && len(sent.Edge) > 0 {
		ours := e
		e = EdgeConfiguration{}
		if _, err := sent.over(sent.Edge, EdgeAPIVersion, EdgeKind, ours, &e, "edge."); err != nil {
			return e, err
		}
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
