package config

import (
	"maps"
	"math"
	"net/netip"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-helpers/node/util/sysctl"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

func (c *checker) checkTLS() {
	k := c.k
	if _, err := cliflag.TLSCipherSuites(k.TLSCipherSuites); err != nil {
		c.addInvalid(field.NewPath("tlsCipherSuites"), k.TLSCipherSuites, "%v", err)
	}
	if _, err := cliflag.TLSVersion(k.TLSMinVersion); err != nil {
		c.addInvalid(field.NewPath("tlsMinVersion"), k.TLSMinVersion, "%v", err)
	}
	if _, err := cliflag.TLSCurvePreferences(k.TLSCurvePreferences); err != nil {
		c.addInvalid(field.NewPath("tlsCurvePreferences"), k.TLSCurvePreferences, "%v", err)
	}
	if (k.TLSCertFile == "") != (k.TLSPrivateKeyFile == "") {
		c.addRequired("tlsPrivateKeyFile", "tlsCertFile and tlsPrivateKeyFile must be set together")
	}
}

// badImagePattern returns the reason why a pattern is invalid, or "". A valid pattern is an image name without tag and
// digest, or a path that ends with /*.
func badImagePattern(p string) string {
	name, wild := strings.CutSuffix(p, "/*")
	switch base := name[strings.LastIndex(name, "/")+1:]; {
	case p != strings.TrimSpace(p):
		return "must not begin or end with a space"
	case name == "":
		return "must contain at least a registry"
	case strings.ContainsAny(name, " \t") || strings.Contains("/"+name+"/", "//"):
		return "is not an image name"
	case strings.Contains(name, "*"):
		return "only the last path element can be *"
	case !wild && strings.ContainsAny(base, ":@"):
		return "must have neither tag nor digest"
	}
	return ""
}

func (c *checker) checkLogs() {
	k := c.k
	checkMinimum(c, "containerLogMaxFiles", *k.ContainerLogMaxFiles, 2)
	checkMinimum(c, "containerLogMaxWorkers", *k.ContainerLogMaxWorkers, 1)
	checkMinimum(c, "containerLogMonitorInterval", k.ContainerLogMonitorInterval.Duration, 3*time.Second)
	if _, err := resource.ParseQuantity(k.ContainerLogMaxSize); err != nil {
		c.addInvalid(field.NewPath("containerLogMaxSize"), k.ContainerLogMaxSize, "must be a quantity such as 10Mi")
	}
	dir := field.NewPath("podLogsDir")
	switch {
	case !filepath.IsAbs(k.PodLogsDir) || filepath.Clean(k.PodLogsDir) != k.PodLogsDir:
		c.addInvalid(dir, k.PodLogsDir, "must be an absolute, clean path: without . and .., double slashes, and a slash at its end")
	case strings.IndexFunc(k.PodLogsDir, func(r rune) bool { return r > 127 }) >= 0:
		c.addInvalid(dir, k.PodLogsDir, "must be ASCII")
	}
	checkOneOf(c, "logging.format", k.Logging.Format, "text", "json")
	if k.Logging.FlushFrequency.Duration.Duration <= 0 {
		c.addInvalid(field.NewPath("logging", "flushFrequency"), k.Logging.FlushFrequency.Duration.String(), "must be greater than 0")
	}
	if len(k.Logging.VModule) > 0 && k.Logging.Format != "text" {
		c.addForbidden("logging.vmodule", "it requires the format text")
	}
	options := &k.Logging.Options
	for name, o := range map[string]*logsapi.OutputRoutingOptions{
		"text": &options.Text.OutputRoutingOptions, "json": &options.JSON.OutputRoutingOptions,
	} {
		if o.SplitStream && !c.gateIsOn(gateLogging) {
			c.addForbidden("logging.options."+name+".splitStream", "needs the feature gate %s", gateLogging)
		}
		if !o.InfoBufferSize.IsZero() {
			c.addForbidden("logging.options."+name+".infoBufferSize", "log lines are not buffered: leave it out")
		}
	}
	if k.Logging.Verbosity > math.MaxInt32 {
		c.addInvalid(field.NewPath("logging", "verbosity"), k.Logging.Verbosity, "must be at most %d", math.MaxInt32)
	}
	for i, m := range k.Logging.VModule {
		if m.FilePattern == "" || strings.ContainsAny(m.FilePattern, "=,") {
			c.addInvalid(field.NewPath("logging", "vmodule").Index(i), m.FilePattern, "must be a file pattern without = and comma")
		}
	}
	c.checkTracing()
}

func (c *checker) checkTracing() {
	k := c.k
	if t := k.Tracing; t != nil && t.Endpoint != nil && t.SamplingRatePerMillion == nil {
		c.addForbidden("tracing.endpoint", "islet has no tracing: leave it out")
	}
	if t := k.Tracing; t != nil && t.SamplingRatePerMillion != nil {
		checkRange(c, "tracing.samplingRatePerMillion", *t.SamplingRatePerMillion, 0, 1000000)
		if n := *t.SamplingRatePerMillion; n > 0 && n <= 1000000 {
			c.addForbidden("tracing.samplingRatePerMillion", "islet has no tracing: leave it out, or set it to 0")
		}
	}
}

// sysctlPattern matches the name of a sysctl, or the beginning of such a name followed by a star.
const sysctlPattern = `^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]$`

// longestSysctl is the maximum length of the name of a sysctl, in bytes.
const longestSysctl = 253

// checkSysctls accepts only sysctls that are namespaced, as a kubelet does.
// https://kubernetes.io/docs/tasks/administer-cluster/sysctl-cluster/
func (c *checker) checkSysctls() {
	pattern := regexp.MustCompile(sysctlPattern)
	for i, s := range c.k.AllowedUnsafeSysctls {
		at := field.NewPath("allowedUnsafeSysctls").Index(i)
		if len(s) > longestSysctl || !pattern.MatchString(s) {
			c.addInvalid(at, s, "must be the name of a sysctl, or its beginning followed by a star")
			continue
		}
		if namespace, _, _ := sysctl.GetNamespace(s); namespace == sysctl.UnknownNamespace {
			c.addInvalid(at, s, "is not a known namespaced sysctl: a pod would change it for the whole host")
		} else if namespace == sysctl.UserNamespace {
			c.addInvalid(at, s, "is a sysctl of user namespaces, which islet does not set")
		}
	}
	c.checkDefaultSysctls(pattern)
}

// checkDefaultSysctls accepts the names of sysctls that islet can set in a pod's own namespaces.
func (c *checker) checkDefaultSysctls(pattern *regexp.Regexp) {
	given := c.k.DefaultPodSysctls
	if len(given) > 0 && !c.gateIsOn(gatePodSysctls) {
		c.addForbidden("defaultPodSysctls", "needs the feature gate %s", gatePodSysctls)
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		at, normal := field.NewPath("defaultPodSysctls").Key(name), sysctl.NormalizeName(name)
		namespace, _, _ := sysctl.GetNamespace(name)
		switch {
		case len(name) > longestSysctl || strings.Contains(name, "*") || !pattern.MatchString(name):
			c.addInvalid(at, given[name], "is not the name of a sysctl")
		case namespace == sysctl.UnknownNamespace:
			c.addInvalid(at, given[name], "is not a known namespaced sysctl: a pod would change it for the whole host")
		case namespace == sysctl.UserNamespace:
			c.addInvalid(at, given[name], "is a sysctl of user namespaces, which islet does not set")
		case seen[normal]:
			c.addInvalid(at, given[name], "the sysctl %s is in the list twice", normal)
		}
		seen[normal] = true
	}
}

func (c *checker) checkNetwork() {
	k := c.k
	checkOneOf(c, "contentType", k.ContentType, ContentTypeProtobuf, ContentTypeJSON)
	checkOneOf(c, "hairpinMode", k.HairpinMode, kubelet.HairpinNone, kubelet.HairpinVeth, kubelet.PromiscuousBridge)
	for i, s := range k.ClusterDNS {
		if _, err := netip.ParseAddr(s); err != nil {
			c.addInvalid(field.NewPath("clusterDNS").Index(i), s, "must be an IP address")
		}
	}
	if d := strings.TrimSuffix(k.ClusterDomain, "."); d != "" {
		for _, e := range validation.IsDNS1123Subdomain(d) {
			c.addInvalid(field.NewPath("clusterDomain"), k.ClusterDomain, "%s", e)
		}
	}
	if k.StaticPodURL != "" {
		if u, err := url.Parse(k.StaticPodURL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			c.addInvalid(field.NewPath("staticPodURL"), k.StaticPodURL, "must be an http or https URL")
		}
	}
	for path, e := range map[string]string{"containerRuntimeEndpoint": k.ContainerRuntimeEndpoint,
		"imageServiceEndpoint": k.ImageServiceEndpoint} {
		if file, ok := strings.CutPrefix(e, "unix://"); e != "" && (!filepath.IsAbs(file) || !ok && strings.Contains(e, ":")) {
			c.addInvalid(field.NewPath(path), e, "must be a unix socket such as unix:///run/containerd/containerd.sock")
		}
	}
}

// formerThrottlingFactor is the default of kubelets before 1.37. A file with this value is valid
// without the feature gate MemoryQoS.
const formerThrottlingFactor = 0.9

func (c *checker) checkCgroups() {
	k := c.k
	checkOneOf(c, "cgroupDriver", k.CgroupDriver, "cgroupfs", "systemd")
	if k.SystemCgroups != "" && k.CgroupRoot == "" {
		c.addRequired("cgroupRoot", "systemCgroups requires it")
	}
	if k.SystemCgroups != "" && path.Join("/", k.SystemCgroups) == "/" {
		c.addInvalid(field.NewPath("systemCgroups"), k.SystemCgroups, "must not be the root")
	}
	if k.CgroupRoot != "" && !filepath.IsAbs(k.CgroupRoot) {
		c.addInvalid(field.NewPath("cgroupRoot"), k.CgroupRoot, "must begin with /")
	}
	if f := k.MemoryThrottlingFactor; f != nil && (*f <= 0 || *f > 1) {
		c.addInvalid(field.NewPath("memoryThrottlingFactor"), *f, "must be greater than 0 and at most 1")
	} else if f != nil && *f != formerThrottlingFactor && !c.gateIsOn(gateMemoryQoS) {
		c.addForbidden("memoryThrottlingFactor", "needs the feature gate %s", gateMemoryQoS)
	}
	checkOneOf(c, "memoryReservationPolicy", k.MemoryReservationPolicy,
		kubelet.NoneMemoryReservationPolicy, kubelet.TieredReservationMemoryReservationPolicy)
	if k.MemoryReservationPolicy == kubelet.TieredReservationMemoryReservationPolicy && !c.gateIsOn(gateMemoryQoS) {
		c.addForbidden("memoryReservationPolicy", "needs the feature gate %s", gateMemoryQoS)
	}
	checkOneOf(c, "memorySwap.swapBehavior", k.MemorySwap.SwapBehavior, "", "NoSwap", "LimitedSwap")
	if k.UserNamespaces != nil && k.UserNamespaces.IDsPerPod != nil {
		if n := *k.UserNamespaces.IDsPerPod; n < 65536 || n%65536 != 0 || n > math.MaxUint32 {
			c.addInvalid(field.NewPath("userNamespaces", "idsPerPod"), n, "must be a multiple of 65536 below 4294967296")
		}
	}
}

func (c *checker) checkManagers() {
	k := c.k
	checkOneOf(c, "cpuManagerPolicy", k.CPUManagerPolicy, "none", "static")
	checkOneOf(c, "memoryManagerPolicy", k.MemoryManagerPolicy, kubelet.NoneMemoryManagerPolicy, kubelet.StaticMemoryManagerPolicy)
	checkOneOf(c, "topologyManagerPolicy", k.TopologyManagerPolicy, kubelet.NoneTopologyManagerPolicy,
		kubelet.BestEffortTopologyManagerPolicy, kubelet.RestrictedTopologyManagerPolicy, kubelet.SingleNumaNodeTopologyManagerPolicy)
	checkOneOf(c, "topologyManagerScope", k.TopologyManagerScope, kubelet.ContainerTopologyManagerScope, kubelet.PodTopologyManagerScope)
	checkOneOf(c, "configMapAndSecretChangeDetectionStrategy", k.ConfigMapAndSecretChangeDetectionStrategy,
		kubelet.WatchChangeDetectionStrategy, kubelet.TTLCacheChangeDetectionStrategy, kubelet.GetChangeDetectionStrategy)
	seen := map[string]bool{}
	for i, r := range k.ReservedMemory {
		for name, q := range r.Limits {
			path := field.NewPath("reservedMemory").Index(i).Child("limits").Key(string(name))
			key := strconv.Itoa(int(r.NumaNode)) + "/" + string(name)
			switch {
			case name != v1.ResourceMemory && !strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix):
				c.addInvalid(path, q.String(), "only memory and %s<size> can be reserved", v1.ResourceHugePagesPrefix)
			case q.IsZero():
				c.addInvalid(path, q.String(), "must not be zero")
			case seen[key]:
				c.errs = append(c.errs, field.Duplicate(path, q.String()))
			}
			seen[key] = true
		}
	}
}

// validCPUs reports whether s is a CPU list such as 0,2-3.
func validCPUs(s string) bool {
	for part := range strings.SplitSeq(s, ",") {
		low, high, isRange := strings.Cut(part, "-")
		from, err := strconv.ParseUint(low, 10, 16)
		if err != nil {
			return false
		}
		to, err := strconv.ParseUint(high, 10, 16)
		if isRange && (err != nil || to < from) {
			return false
		}
	}
	return true
}

func (c *checker) checkTaints() {
	for i, t := range c.k.RegisterWithTaints {
		path := field.NewPath("registerWithTaints").Index(i)
		for _, e := range validation.IsQualifiedName(t.Key) {
			c.addInvalid(path.Child("key"), t.Key, "%s", e)
		}
		for _, e := range validation.IsValidLabelValue(t.Value) {
			c.addInvalid(path.Child("value"), t.Value, "%s", e)
		}
		switch t.Effect {
		case v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute:
		default:
			c.errs = append(c.errs, field.NotSupported(path.Child("effect"), t.Effect,
				[]v1.TaintEffect{v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute}))
		}
		if t.TimeAdded != nil {
			c.errs = append(c.errs, field.Forbidden(path.Child("timeAdded"), "must not be set in a configuration"))
		}
	}
}
