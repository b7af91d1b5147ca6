package config

import (
	"maps"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logs "k8s.io/component-base/logs/api/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// These are the content types of requests to the API server.
const (
	ContentTypeProtobuf = "application/vnd.kubernetes.protobuf"
	ContentTypeJSON     = "application/json"
)

// defaultKubelet returns the defaults of kubelet 1.37, as documented at
// https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/. Two defaults differ from
// the kubelet's. The default of containerRuntimeEndpoint is empty, which means islet's own runtime.
// The default of failCgroupV1 is false, because islet supports cgroup v1. podLogsDir, cgroupRoot
// and podCIDR depend on the directories (see deriveConfig).
func defaultKubelet() kubelet.KubeletConfiguration {
	return kubelet.KubeletConfiguration{
		EnableServer:       new(true),
		SyncFrequency:      secondsDuration(60),
		FileCheckFrequency: secondsDuration(20),
		HTTPCheckFrequency: secondsDuration(20),
		Address:            "0.0.0.0",
		Port:               10250,
		Authentication: kubelet.KubeletAuthentication{
			Anonymous: kubelet.KubeletAnonymousAuthentication{Enabled: new(false)},
			Webhook:   kubelet.KubeletWebhookAuthentication{Enabled: new(true), CacheTTL: secondsDuration(120)},
		},
		Authorization: kubelet.KubeletAuthorization{
			Mode: kubelet.KubeletAuthorizationModeWebhook,
			Webhook: kubelet.KubeletWebhookAuthorization{CacheAuthorizedTTL: secondsDuration(300),
				CacheUnauthorizedTTL: secondsDuration(30)},
		},
		RegistryPullQPS:                           new(int32(5)),
		RegistryBurst:                             10,
		ImagePullCredentialsVerificationPolicy:    kubelet.NeverVerifyPreloadedImages,
		EventRecordQPS:                            new(int32(50)),
		EventBurst:                                100,
		EnableDebuggingHandlers:                   new(true),
		HealthzPort:                               new(int32(10248)),
		HealthzBindAddress:                        "127.0.0.1",
		OOMScoreAdj:                               new(int32(-999)),
		StreamingConnectionIdleTimeout:            secondsDuration(4 * 60 * 60),
		NodeStatusUpdateFrequency:                 secondsDuration(10),
		NodeStatusReportFrequency:                 secondsDuration(300),
		NodeLeaseDurationSeconds:                  40,
		ImageMinimumGCAge:                         secondsDuration(120),
		ImageGCHighThresholdPercent:               new(int32(85)),
		ImageGCLowThresholdPercent:                new(int32(80)),
		VolumeStatsAggPeriod:                      secondsDuration(60),
		CgroupsPerQOS:                             new(true),
		CgroupDriver:                              "cgroupfs",
		CPUManagerPolicy:                          "none",
		CPUManagerReconcilePeriod:                 secondsDuration(10),
		MemoryManagerPolicy:                       kubelet.NoneMemoryManagerPolicy,
		TopologyManagerPolicy:                     kubelet.NoneTopologyManagerPolicy,
		TopologyManagerScope:                      kubelet.ContainerTopologyManagerScope,
		RuntimeRequestTimeout:                     secondsDuration(120),
		HairpinMode:                               kubelet.PromiscuousBridge,
		MaxPods:                                   110,
		PodPidsLimit:                              new(int64(-1)),
		ResolverConfig:                            new("/etc/resolv.conf"),
		CPUCFSQuota:                               new(true),
		CPUCFSQuotaPeriod:                         &metav1.Duration{Duration: 100 * time.Millisecond},
		NodeStatusMaxImages:                       new(int32(50)),
		MaxOpenFiles:                              1000000,
		ContentType:                               ContentTypeProtobuf,
		KubeAPIQPS:                                new(int32(50)),
		KubeAPIBurst:                              100,
		EvictionPressureTransitionPeriod:          secondsDuration(300),
		MergeDefaultEvictionSettings:              new(false),
		EnableControllerAttachDetach:              new(true),
		MakeIPTablesUtilChains:                    new(true),
		IPTablesMasqueradeBit:                     new(int32(14)),
		IPTablesDropBit:                           new(int32(15)),
		FailSwapOn:                                new(true),
		ContainerLogMaxSize:                       "10Mi",
		ContainerLogMaxFiles:                      new(int32(5)),
		ContainerLogMaxWorkers:                    new(int32(1)),
		ContainerLogMonitorInterval:               new(secondsDuration(10)),
		ConfigMapAndSecretChangeDetectionStrategy: kubelet.WatchChangeDetectionStrategy,
		EnforceNodeAllocatable:                    []string{"pods"},
		VolumePluginDir:                           "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/",
		Logging: logs.LoggingConfiguration{
			Format:         "text",
			FlushFrequency: logs.TimeOrMetaDuration{Duration: secondsDuration(5), SerializeAsString: true},
		},
		EnableSystemLogHandler:        new(true),
		EnableProfilingHandler:        new(true),
		EnableDebugFlagsHandler:       new(true),
		SeccompDefault:                new(false),
		MemoryReservationPolicy:       kubelet.NoneMemoryReservationPolicy,
		RegisterNode:                  new(true),
		LocalStorageCapacityIsolation: new(true),
		FailCgroupV1:                  new(false),
		CrashLoopBackOff:              kubelet.CrashLoopBackOffConfig{MaxContainerRestartPeriod: new(secondsDuration(300))},
	}
}

// defaultEvictionHard returns the thresholds that apply if the configuration sets no hard
// threshold, or sets mergeDefaultEvictionSettings.
func defaultEvictionHard() map[string]string {
	return map[string]string{
		"memory.available":   "100Mi",
		"nodefs.available":   "10%",
		"nodefs.inodesFree":  "5%",
		"imagefs.available":  "15%",
		"imagefs.inodesFree": "5%",
	}
}

func secondsDuration(n int) metav1.Duration {
	return metav1.Duration{Duration: time.Duration(n) * time.Second}
}

// setKubeletDefaults sets defaults for fields that are unset or zero. It is idempotent.
func setKubeletDefaults(c *kubelet.KubeletConfiguration) {
	if c.NodeStatusReportFrequency.Duration == 0 { // the default is the update frequency, if that is set
		c.NodeStatusReportFrequency = c.NodeStatusUpdateFrequency
	}
	if c.SerializeImagePulls == nil {
		c.SerializeImagePulls = new(c.MaxParallelImagePulls == nil || *c.MaxParallelImagePulls < 2)
	}
	if c.PodPidsLimit != nil && *c.PodPidsLimit < 0 {
		c.PodPidsLimit = nil
	}
	defaults := defaultKubelet()
	if !gateOn(c.FeatureGates, gateCrashLoop) {
		defaults.CrashLoopBackOff.MaxContainerRestartPeriod = nil
	}
	if !gateOn(c.FeatureGates, gatePulledImages) {
		defaults.ImagePullCredentialsVerificationPolicy = ""
	}
	fillZeroFields(reflect.ValueOf(c).Elem(), reflect.ValueOf(defaults))
	if c.EvictionHard == nil {
		c.EvictionHard = defaultEvictionHard()
	} else if *c.MergeDefaultEvictionSettings {
		merged := defaultEvictionHard()
		maps.Copy(merged, c.EvictionHard)
		c.EvictionHard = merged
	}
}

// fillZeroFields sets each zero field of a struct to its default, recursively. The defaults are in a struct of the
// same type.
func fillZeroFields(c, defaults reflect.Value) {
	if c.Kind() == reflect.Struct {
		for i := range c.NumField() {
			fillZeroFields(c.Field(i), defaults.Field(i))
		}
	} else if c.CanSet() && c.IsZero() { // the unexported fields of a quantity cannot be set
		c.Set(defaults)
	}
}
