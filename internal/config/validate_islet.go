package config

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	labels "k8s.io/kubelet/pkg/apis"
)

// interfaceName reports whether a name is valid for a network interface in the kernel, nftables,
// sysctl and conflists.
func interfaceName(name string) bool {
	odd := strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
	return name != "" && len(name) <= 15 && odd == ""
}

func (c *checker) checkEdge() {
	e, root := c.edge, field.NewPath(EdgeKind)
	if e.ShimPods < 1 || e.ShimPods > 1000 {
		c.addInvalid(root.Child("shimPods"), e.ShimPods, "must be between 1 and 1000, inclusive")
	}
	if !interfaceName(e.BridgeName) {
		c.addInvalid(root.Child("bridgeName"), e.BridgeName, "must be an interface name: at most 15 letters, digits, - and _")
	}
	checkOneOf(c, EdgeKind+".networkPlugin", e.NetworkPlugin, "auto", "built-in", "cni")
	if strings.Contains(e.OCIRuntime, "/") && !filepath.IsAbs(e.OCIRuntime) {
		c.addInvalid(root.Child("ociRuntime"), e.OCIRuntime, "must be a name or an absolute path")
	}
	c.checkBytes(root.Child("podLogQuota"), e.PodLogQuota)
	c.checkBytes(root.Child("flashBudget"), e.FlashBudget)
	c.checkRuntimeHandlers(root.Child("runtimeHandlers"))
	c.checkDevices(root.Child("devices"))
	c.checkRealTime(root.Child("realTime"))
	c.checkFollowing(root.Child("configuration"))
	c.checkUpdates(root.Child("update"))
	c.checkBundles(root.Child("bundle"))
	if len(e.CRISocket) > maxSocketPath {
		c.addInvalid(root.Child("criSocket"), e.CRISocket, "is longer than the maximum of a socket's path (%d)", maxSocketPath)
	}
	if e.StatusPagePort < 0 || e.StatusPagePort > 65535 {
		c.addInvalid(root.Child("statusPagePort"), e.StatusPagePort, "must be a port, or 0 for none")
	}
	if e.HoldPodsFor.Duration < 0 {
		c.addInvalid(root.Child("holdPodsFor"), e.HoldPodsFor.Duration.String(), "must not be negative; 0s holds pods until islet accept")
	}
}

// checkBytes checks a quantity of bytes. An empty text is valid and means that the quantity is not
// set.
func (c *checker) checkBytes(path *field.Path, text string) {
	if text == "" {
		return
	}
	if q, err := resource.ParseQuantity(text); err != nil {
		c.addInvalid(path, text, "must be a quantity of bytes such as 20Mi: %v", err)
	} else if q.Value() < leastBytes {
		c.addInvalid(path, text, "must be at least 1Mi; leave it out for no limit")
	}
}

// leastBytes is the smallest valid quantity of bytes. A smaller quantity is usually a mistake, such
// as 20m.
const leastBytes = 1 << 20

// bytesOf returns the number of bytes of a valid quantity, or 0 for an empty text.
func bytesOf(text string) int64 {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0
	}
	return q.Value()
}

// checkRuntimeHandlers checks that the names of handlers are valid and unique, and that each
// handler has exactly one program.
func (c *checker) checkRuntimeHandlers(root *field.Path) {
	seen := map[string]bool{}
	for i, h := range c.edge.RuntimeHandlers {
		path := root.Index(i)
		for _, e := range validation.IsDNS1123Label(h.Name) {
			c.addInvalid(path.Child("name"), h.Name, "%s", e)
		}
		if seen[h.Name] {
			c.errs = append(c.errs, field.Duplicate(path.Child("name"), h.Name))
		}
		seen[h.Name] = true
		c.checkHandlerProgram(path, h)
	}
}

func (c *checker) checkHandlerProgram(path *field.Path, h RuntimeHandler) {
	program, value := path.Child("ociRuntime"), h.OCIRuntime
	if h.Shim != "" {
		program, value = path.Child("shim"), h.Shim
	}
	switch base := filepath.Base(value); {
	case value == "":
		c.errs = append(c.errs, field.Required(program,
			"set the OCI runtime that runs the handler's containers, or a containerd shim as shim"))
	case h.Shim != "" && h.OCIRuntime != "":
		c.addInvalid(program, value, "ociRuntime is set as well: a handler has one program")
	case h.Shim == "" && strings.HasPrefix(base, "containerd-shim-"):
		c.addInvalid(program, value, "is a containerd shim: set shim instead of ociRuntime")
	case strings.HasPrefix(value, "io.containerd."):
		c.addInvalid(program, value, "is a runtime type of containerd: set shim to the program, such as containerd-shim-runsc-v1")
	case strings.Contains(value, "/") && !filepath.IsAbs(value):
		c.addInvalid(program, value, "must be a name or an absolute path")
	}
	if f := h.ShimConfig; f != "" && (h.Shim == "" || !filepath.IsAbs(f)) {
		c.addInvalid(path.Child("shimConfig"), f, "must be an absolute path, and needs shim")
	}
}

// maxSocketPath is the maximum length of a path in a sockaddr_un in bytes, without the final zero.
const maxSocketPath = 107

func (c *checker) checkFlags() {
	o := c.opts
	flag := func(name string) *field.Path { return field.NewPath("--" + name) }
	checkOneOf(c, "--cloud-provider", o.CloudProvider, "", "external")
	if len(filepath.Join(o.RunDir, "islet.sock")) > maxSocketPath {
		c.addInvalid(flag("run-dir"), o.RunDir, "is too long for the paths of sockets")
	}
	if (o.ImageCredentialProviderConfig == "") != (o.ImageCredentialProviderBinDir == "") {
		c.addRequired("--image-credential-provider-bin-dir", "and --image-credential-provider-config must be set together")
	}
	for _, k := range slices.Sorted(maps.Keys(o.NodeLabels)) {
		path := flag("node-labels").Key(k)
		for _, e := range validation.IsQualifiedName(k) {
			c.addInvalid(path, k, "%s", e)
		}
		for _, e := range validation.IsValidLabelValue(o.NodeLabels[k]) {
			c.addInvalid(path, o.NodeLabels[k], "%s", e)
		}
		if kubernetesOwned(k) && !labels.IsKubeletLabel(k) {
			c.addInvalid(path, k, "a node may not set this label; see the NodeRestriction admission plugin")
		}
	}
}

// kubernetesOwned reports whether a label's prefix is reserved for Kubernetes.
func kubernetesOwned(label string) bool {
	prefix, _, ok := strings.Cut(label, "/")
	if !ok {
		return false
	}
	prefix = "." + prefix
	return strings.HasSuffix(prefix, ".kubernetes.io") || strings.HasSuffix(prefix, ".k8s.io")
}
