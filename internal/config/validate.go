package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// A checker collects the mistakes of a configuration. Its rules are the kubelet's. Each error
// contains the path of its field.
type checker struct {
	k    *kubelet.KubeletConfiguration
	edge *EdgeConfiguration
	opts *options
	errs []error
}

// validate checks a configuration whose defaults are set. It does not inspect the host; CheckHost
// does.
func validate(s *settings) []error {
	c := &checker{k: &s.KubeletConfiguration, edge: &s.Edge, opts: &s.Flags}
	c.checkServer()
	c.checkTLS()
	c.checkNumbers()
	c.checkDurations()
	c.checkImages()
	c.checkLogs()
	c.checkSysctls()
	c.checkNetwork()
	c.checkCgroups()
	c.checkManagers()
	c.checkReserved()
	c.checkEviction()
	c.checkShutdown()
	c.checkFeatures()
	c.checkFeatureGates()
	c.checkTaints()
	c.checkEdge()
	c.checkRemote()
	c.checkFlags()
	slices.SortStableFunc(c.errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return c.errs
}

func (c *checker) addInvalid(path *field.Path, value any, format string, args ...any) {
	c.errs = append(c.errs, field.Invalid(path, value, fmt.Sprintf(format, args...)))
}

func (c *checker) addForbidden(path, format string, args ...any) {
	c.errs = append(c.errs, field.Forbidden(field.NewPath(path), fmt.Sprintf(format, args...)))
}

func (c *checker) addRequired(path, format string, args ...any) {
	c.errs = append(c.errs, field.Required(field.NewPath(path), fmt.Sprintf(format, args...)))
}

// checkOneOf checks that a value is in a list of allowed values.
func checkOneOf[T ~string](c *checker, path string, value T, valid ...T) {
	if !slices.Contains(valid, value) {
		c.errs = append(c.errs, field.NotSupported(field.NewPath(path), value, valid))
	}
}

// checkRange checks that a value is in an inclusive range.
func checkRange[T cmp.Ordered](c *checker, path string, value, low, high T) {
	if value < low || value > high {
		c.addInvalid(field.NewPath(path), value, "must be between %v and %v, inclusive", low, high)
	}
}

func checkMinimum[T cmp.Ordered](c *checker, path string, value, low T) {
	if value < low {
		c.addInvalid(field.NewPath(path), value, "must be %v or more", low)
	}
}

func (c *checker) checkServer() {
	k := c.k
	c.checkIP("address", k.Address)
	c.checkIP("healthzBindAddress", k.HealthzBindAddress)
	checkRange(c, "port", k.Port, 1, 65535)
	checkRange(c, "readOnlyPort", k.ReadOnlyPort, 0, 65535)
	checkRange(c, "healthzPort", *k.HealthzPort, 0, 65535)
	checkOneOf(c, "authorization.mode", k.Authorization.Mode, kubelet.KubeletAuthorizationModeAlwaysAllow,
		kubelet.KubeletAuthorizationModeWebhook)
	if k.ServerTLSBootstrap && !c.gateIsOn(gateServingCert) {
		c.addForbidden("serverTLSBootstrap", "needs the feature gate %s", gateServingCert)
	}
	if q := k.EnableSystemLogQuery; q != nil && *q {
		c.addForbidden("enableSystemLogQuery",
			"islet does not have it: a kubelet runs journalctl for each query, which small devices may not have. "+
				"Leave it out, and read the files at /logs/")
	}
	if v := k.ShowHiddenMetricsForVersion; v != "" && v != previousVersion {
		c.addInvalid(field.NewPath("showHiddenMetricsForVersion"), v, "must be empty or the version before this one, %s", previousVersion)
	}
	if k.RunOnce {
		c.addForbidden("runOnce", "kubelets no longer have this mode; use a Job or a static pod with restartPolicy: Never")
	}
}

func (c *checker) checkIP(path, value string) {
	for _, e := range validation.IsValidIP(field.NewPath(path), value) {
		c.errs = append(c.errs, e)
	}
}

// checkNumbers checks fields whose only rule is a range.
func (c *checker) checkNumbers() {
	k := c.k
	checkMinimum(c, "eventBurst", k.EventBurst, 0)
	checkMinimum(c, "eventRecordQPS", *k.EventRecordQPS, 0)
	checkMinimum(c, "kubeAPIBurst", k.KubeAPIBurst, 0)
	checkMinimum(c, "kubeAPIQPS", *k.KubeAPIQPS, 0)
	checkMinimum(c, "maxOpenFiles", k.MaxOpenFiles, 0)
	checkMinimum(c, "maxPods", k.MaxPods, 0)
	checkMinimum(c, "nodeLeaseDurationSeconds", k.NodeLeaseDurationSeconds, 1)
	checkMinimum(c, "nodeStatusMaxImages", *k.NodeStatusMaxImages, -1)
	checkMinimum(c, "podsPerCore", k.PodsPerCore, 0)
	checkMinimum(c, "registryBurst", k.RegistryBurst, 0)
	checkMinimum(c, "registryPullQPS", *k.RegistryPullQPS, 0)
	checkRange(c, "iptablesDropBit", *k.IPTablesDropBit, 0, 31)
	checkRange(c, "iptablesMasqueradeBit", *k.IPTablesMasqueradeBit, 0, 31)
	checkRange(c, "oomScoreAdj", *k.OOMScoreAdj, -1000, 1000)
	checkMinimum(c, "podPidsLimit", *k.PodPidsLimit, -1)
}

// checkDurations checks fields that are the period of a loop. A loop with a negative period would
// never wait.
func (c *checker) checkDurations() {
	k := c.k
	for path, d := range map[string]time.Duration{
		"syncFrequency":                    k.SyncFrequency.Duration,
		"fileCheckFrequency":               k.FileCheckFrequency.Duration,
		"httpCheckFrequency":               k.HTTPCheckFrequency.Duration,
		"nodeStatusUpdateFrequency":        k.NodeStatusUpdateFrequency.Duration,
		"nodeStatusReportFrequency":        k.NodeStatusReportFrequency.Duration,
		"runtimeRequestTimeout":            k.RuntimeRequestTimeout.Duration,
		"streamingConnectionIdleTimeout":   k.StreamingConnectionIdleTimeout.Duration,
		"evictionPressureTransitionPeriod": k.EvictionPressureTransitionPeriod.Duration,
		"cpuManagerReconcilePeriod":        k.CPUManagerReconcilePeriod.Duration,
	} {
		checkMinimum(c, path, d, 0)
	}
	checkRange(c, "cpuCFSQuotaPeriod", k.CPUCFSQuotaPeriod.Duration, time.Millisecond, time.Second)
	if k.CPUCFSQuotaPeriod.Duration != 100*time.Millisecond && !c.gateIsOn(gateQuotaPeriod) {
		c.addForbidden("cpuCFSQuotaPeriod", "needs the feature gate %s", gateQuotaPeriod)
	}
}

func (c *checker) checkImages() {
	k := c.k
	high, low := *k.ImageGCHighThresholdPercent, *k.ImageGCLowThresholdPercent
	checkRange(c, "imageGCHighThresholdPercent", high, 0, 100)
	checkRange(c, "imageGCLowThresholdPercent", low, 0, 100)
	if low >= high {
		c.addInvalid(field.NewPath("imageGCLowThresholdPercent"), low, "must be less than imageGCHighThresholdPercent (%d)", high)
	}
	oldest, youngest := k.ImageMaximumGCAge.Duration, k.ImageMinimumGCAge.Duration
	checkMinimum(c, "imageMinimumGCAge", youngest, 0)
	checkMinimum(c, "imageMaximumGCAge", oldest, 0)
	if oldest > 0 && oldest <= youngest {
		c.addInvalid(field.NewPath("imageMaximumGCAge"), oldest, "must be greater than imageMinimumGCAge (%v)", youngest)
	}
	if n := k.MaxParallelImagePulls; n != nil {
		checkMinimum(c, "maxParallelImagePulls", *n, 1)
		if *k.SerializeImagePulls && *n > 1 {
			c.addInvalid(field.NewPath("maxParallelImagePulls"), *n, "must be 1 unless serializeImagePulls is false")
		}
	}
	if !c.gateIsOn(gatePulledImages) {
		if k.ImagePullCredentialsVerificationPolicy != "" || len(k.PreloadedImagesVerificationAllowlist) > 0 {
			c.addForbidden("imagePullCredentialsVerificationPolicy",
				"needs the feature gate %s, as does preloadedImagesVerificationAllowlist", gatePulledImages)
		}
		return
	}
	checkOneOf(c, "imagePullCredentialsVerificationPolicy", k.ImagePullCredentialsVerificationPolicy,
		kubelet.NeverVerify, kubelet.NeverVerifyPreloadedImages, kubelet.NeverVerifyAllowlistedImages, kubelet.AlwaysVerify)
	if len(k.PreloadedImagesVerificationAllowlist) > 0 && k.ImagePullCredentialsVerificationPolicy != kubelet.NeverVerifyAllowlistedImages {
		c.addForbidden("preloadedImagesVerificationAllowlist", "needs imagePullCredentialsVerificationPolicy: %s",
			kubelet.NeverVerifyAllowlistedImages)
	}
	for i, pattern := range k.PreloadedImagesVerificationAllowlist {
		if why := badImagePattern(pattern); why != "" {
			c.addInvalid(field.NewPath("preloadedImagesVerificationAllowlist").Index(i), pattern, "%s", why)
		}
	}
}
