package config

import (
	"cmp"
	"encoding/json"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/pflag"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// Config is the complete, validated configuration of an agent. It is immutable.
type Config struct {
	// Kubelet has all defaults set. A pointer to a scalar is nil only if nil means something that
	// no value can express.
	Kubelet kubelet.KubeletConfiguration
	// Edge has all defaults set. The paths in it are absolute.
	Edge EdgeConfiguration
	// Dirs are the agent's own directories, as absolute paths.
	Dirs Dirs
	// Node identifies this machine.
	Node Node
	// PodLogQuota limits the logs of a pod, and FlashBudget the bytes written per day, both in
	// bytes. 0 means no limit.
	PodLogQuota, FlashBudget int64
	// DeadLimit limits the exited containers that are kept.
	DeadLimit DeadLimit

	// Kubeconfig and BootstrapKubeconfig are files with the address of the API server. Without
	// either, the node stands alone.
	Kubeconfig, BootstrapKubeconfig string
	// Left is set by the agent if the configuration has no cluster any more, but the node still has pods of a cluster. The
	// node then works as without a link to the API server.
	Left bool
	// CredentialProviderConfig and CredentialProviderBinDir configure image credential provider
	// plugins. They are empty if there are no plugins.
	CredentialProviderConfig, CredentialProviderBinDir string

	// PodCIDRs are the pod CIDRs of the built-in network until a control plane assigns other CIDRs.
	// There is one prefix, or one prefix for each IP family.
	PodCIDRs []netip.Prefix
	// LogLevel is --v as a slog level: klog's V(n) is level -n.
	LogLevel slog.Level
	// ContainerLogMaxSize is the parsed containerLogMaxSize, in bytes.
	ContainerLogMaxSize int64
	// CPUPeriod is the period of CPU quotas, in microseconds. If it is negative, CPU limits are not
	// enforced.
	CPUPeriod int64
	// CrashMax is the longest restart back-off of a crashing container.
	CrashMax time.Duration
	// SwapUnasked is set if the node stands alone and failSwapOn is not set. The agent then starts
	// in spite of swap and logs a warning.
	SwapUnasked bool

	// RuntimeEndpoint and ImageEndpoint are the sockets of an external runtime. They are empty for
	// islet's own runtime.
	RuntimeEndpoint, ImageEndpoint string

	flags []string
	files *ownFiles
}

// Flags returns all flags that have an effect, as name=value, sorted. If a file sets a field, its
// flag shows the file's value. Values that may contain a password are shown as CLASSIFIED.
func (c *Config) Flags() []string { return c.flags }

// IDsPerPod returns the number of user IDs in a pod's user namespace.
func (c *Config) IDsPerPod() uint32 {
	if u := c.Kubelet.UserNamespaces; u != nil && u.IDsPerPod != nil && *u.IDsPerPod > 0 {
		return uint32(*u.IDsPerPod) // validation has checked the range
	}
	return 65536
}

// PollPeriod returns the average period of polling for changes that cause no event, such as a larger volume for a
// claim. A kubelet polls for such changes when it syncs a pod. The time between two syncs is random, between
// syncFrequency and 1.5 times syncFrequency.
func (c *Config) PollPeriod() time.Duration {
	return max(cmp.Or(c.Kubelet.SyncFrequency.Duration, time.Minute), time.Second) * 4 / 3
}

// Standalone reports whether the node has no control plane.
func (c *Config) Standalone() bool {
	return c.Kubeconfig == "" && c.BootstrapKubeconfig == "" && !c.Left
}

// Dirs are the directories of one agent. Two agents with different directories do not interfere.
type Dirs struct {
	Root  string // pods, volumes, plugins; /var/lib/kubelet
	State string // database, containerd, images; /var/lib/islet
	Run   string // sockets, pins; /run/islet
	Cert  string // certificates; pki in Root unless --cert-dir is given

	LogLinks string // links to containers' logs; /var/log/containers
}

// HasDefaultRun reports whether the agent has the default run directory. An agent with another one may share its machine with a second
// agent.
func (d *Dirs) HasDefaultRun() bool { return d.Run == defaultRun }

// Node is the identity of this machine in a cluster.
type Node struct {
	Name string // lower case
	// IPs are the addresses in --node-ip. If the flag contains no address, the node has the addresses of the
	// default route. An unspecified address means the default route's address of that IP family.
	IPs           []netip.Addr
	Labels        map[string]string
	CloudProvider string // "" or "external"
}

// DeadLimit limits the exited containers that are kept.
type DeadLimit struct {
	MinAge          time.Duration
	MaxPerContainer int32 // exited instances of each container of a pod
	Max             int32 // exited containers on the whole node; negative for no limit
}

// A Notice is a message to the user that a setting has no effect. It is logged once.
type Notice struct {
	Subject string // --flag, or file: field
	Text    string // the reason
}

// String returns the line to log.
func (n Notice) String() string { return n.Subject + " has no effect: " + n.Text }

// Load returns the configuration that results from the command line, the files that the command line names, and the
// defaults. The arguments do not include the program's name. Flags override drop-in files, which override the file.
// If a flag is repeated, its last value applies. The values of a repeated list or map flag are merged. For --help
// and --version, the error has the type *InfoRequest. Any other error consists of joined errors: one *FileError or
// *field.Error for each mistake.
func Load(args []string) (*Config, []Notice, error) { return LoadWith(args, nil) }

// LoadWith is like Load, but it also applies a configuration that the API server has sent to the node. It passes the directories of the
// command line to readSent, which returns the sent configuration or nil. The sent KubeletConfiguration replaces the --config file,
// except for fields that belong to the node (see BoundFields). The sent EdgeConfiguration replaces the --edge-config file in the same
// way. Drop-in files and flags override both.
//
// Without --config and --edge-config, the files in DefaultDir are used where they exist. The flags in its FlagsFile come before args.
func LoadWith(args []string, readSent func(Dirs) (*SentConfiguration, error)) (*Config, []Notice, error) {
	return load(args, readSent, DefaultDir, nil)
}

// load is like LoadWith. The parameter defaults is the directory of the default files. If it is "", there
// are no default files. The parameter contents maps absolute paths to the contents of files that are not read from
// the disk. A file whose content is nil does not exist.
func load(args []string, readSent func(Dirs) (*SentConfiguration, error), defaults string, contents map[string][]byte) (
	*Config, []Notice, error,
) {
	first, given, own, args, err := parseArguments(args, defaults, contents)
	if err != nil {
		return nil, nil, err
	}
	given.useDefaultFiles(defaults, &first.Flags, own)
	received, err := loadSent(&first.Flags, readSent)
	if err != nil {
		return nil, nil, err
	}
	kube, docs, err := loadKubelet(own, first.Flags.Config, first.Flags.ConfigDir, received)
	if err != nil {
		return nil, nil, err
	}
	edge, edgeDoc, err := loadEdge(own, first.Flags.EdgeConfig, received)
	if err != nil {
		return nil, nil, err
	}
	// Parse the flags again, so that they override the values of the files.
	s := settings{KubeletConfiguration: kube, Edge: edge, Flags: defaultOptions()}
	fs := newFlagSet(&s)
	if err := fs.parse(args); err != nil {
		return nil, nil, err
	}
	fs.useDefaultFiles(defaults, &s.Flags, own)
	mergeGates(&s.KubeletConfiguration, kube.FeatureGates)
	idle := unusedNotices(&s)
	c, errs := deriveConfig(&s)
	if c.Standalone() && !isSet("failSwapOn", fs, docs) {
		c.Kubelet.FailSwapOn, c.SwapUnasked = new(false), true
	}
	small := setMemoryDefaults(&c.Kubelet, totalMemory("/proc/meminfo"), func(field string) bool { return isSet(field, fs, docs) })
	if errs = append(errs, validate(&s)...); len(errs) > 0 {
		return nil, nil, addPositions(errs, fs, docs, edgeDoc)
	}
	s.KubeletConfiguration = c.Kubelet
	c.flags, c.files = fs.listFlags(), own
	return c, slices.Concat(listNotices(c, fs, docs), idle, small), nil
}

// isSet reports whether the command line or a file sets a top-level field. It returns true even if
// the value is the default.
func isSet(path string, fs flagSet, docs []document) bool {
	found := false
	fs.Visit(func(f *pflag.Flag) { found = found || fs.rows[f.Name].field == path })
	for _, doc := range docs {
		var fields map[string]json.RawMessage
		if json.Unmarshal(doc.json, &fields) == nil && len(fields[path]) > 0 && string(fields[path]) != "null" {
			found = true
		}
	}
	return found
}

// loadEdge returns the EdgeConfiguration and its document. The document is empty if neither a file nor a
// sent configuration contains one.
func loadEdge(own *ownFiles, file string, sent *SentConfiguration) (EdgeConfiguration, document, error) {
	var e EdgeConfiguration
	var doc document
	if file != "" {
		var err error
		if doc, err = readDocument(own, file, EdgeAPIVersion, EdgeKind, &e); err != nil {
			return e, doc, err
		}
		own.noteVersion(doc.file, e.APIVersion)
		makeAbsolute(e.pathFields(), filepath.Dir(doc.file))
	}
	if sent != nil && len(sent.Edge) > 0 {
		ours := e
		e = EdgeConfiguration{}
		var err error
		if doc, err = sent.decodeOver(sent.Edge, EdgeAPIVersion, EdgeKind, ours, &e, "edge."); err != nil {
			return e, doc, err
		}
		own.noteVersion(sent.Name, e.APIVersion)
	}
	e.APIVersion = EdgeAPIVersion // decode also accepts the version before
	setEdgeDefaults(&e)
	return e, doc, nil
}

// mergeGates adds the feature gates in the files to the feature gates in the flags. If a flag and a
// file set the same gate, the flag's value is used.
func mergeGates(c *kubelet.KubeletConfiguration, files map[string]bool) {
	for name, on := range files {
		if _, given := c.FeatureGates[name]; !given {
			c.FeatureGates[name] = on
		}
	}
}
