package config

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkReserved checks the reservations and their enforcement.
func (c *checker) checkReserved() {
	k := c.k
	c.checkReservedList("systemReserved", k.SystemReserved)
	c.checkReservedList("kubeReserved", k.KubeReserved)
	if len(k.QOSReserved) > 0 && !c.gateIsOn(gateQoSReserved) {
		c.addForbidden("qosReserved", "needs the feature gate %s", gateQoSReserved)
	}
	for name, share := range k.QOSReserved {
		path := field.NewPath("qosReserved").Key(name)
		percent, err := strconv.Atoi(strings.TrimSuffix(share, "%"))
		switch {
		case name != "memory":
			c.addInvalid(path, share, "only memory can be reserved")
		case !strings.HasSuffix(share, "%") || err != nil || percent < 0 || percent > 100:
			c.addInvalid(path, share, "must be between 0%% and 100%%")
		}
	}
	if k.ReservedSystemCPUs != "" {
		if k.SystemReservedCgroup != "" || k.KubeReservedCgroup != "" {
			c.addForbidden("reservedSystemCPUs", "cannot be combined with systemReservedCgroup or kubeReservedCgroup")
		}
		if !validCPUs(k.ReservedSystemCPUs) {
			c.addInvalid(field.NewPath("reservedSystemCPUs"), k.ReservedSystemCPUs, "must be a list such as 0,2-3")
		}
	}
	c.checkEnforcement()
}

func (c *checker) checkReservedList(name string, list map[string]string) {
	for key, v := range list {
		path := field.NewPath(name).Key(key)
		q, err := resource.ParseQuantity(v)
		switch {
		case !slices.Contains([]string{"cpu", "memory", "ephemeral-storage", "pid"}, key):
			c.addInvalid(path, v, "only cpu, memory, ephemeral-storage and pid can be reserved")
		case err != nil || q.Sign() < 0:
			c.addInvalid(path, v, "must be a non-negative quantity")
		}
	}
}

func (c *checker) checkEnforcement() {
	k := c.k
	const compressible = "-compressible"
	if !*k.CgroupsPerQOS {
		c.addForbidden("cgroupsPerQOS", "islet isolates, measures and kills pods by their cgroups: leave it true")
	}
	path := field.NewPath("enforceNodeAllocatable")
	all := k.EnforceNodeAllocatable
	for i, what := range all {
		kind := strings.TrimSuffix(what, compressible)
		switch {
		case slices.Contains(all[:i], what):
			c.errs = append(c.errs, field.Duplicate(path.Index(i), what))
		case what == "none":
			if len(all) > 1 {
				c.addInvalid(path, all, "none cannot be combined with other values")
			}
			continue
		case what == "pods":
		case kind == "system-reserved" || kind == "kube-reserved":
			if kind != what && slices.Contains(all, kind) {
				c.addInvalid(path, all, "%s and %s exclude each other", what, kind)
			}
			if kind == "system-reserved" && k.SystemReservedCgroup == "" {
				c.addRequired("systemReservedCgroup", "enforceNodeAllocatable: %s requires it", what)
			}
			if kind == "kube-reserved" && k.KubeReservedCgroup == "" {
				c.addRequired("kubeReservedCgroup", "enforceNodeAllocatable: %s requires it", what)
			}
		default:
			c.errs = append(c.errs, field.NotSupported(path.Index(i), what,
				[]string{"pods", "system-reserved", "system-reserved-compressible", "kube-reserved", "kube-reserved-compressible", "none"}))
			continue
		}
		if !*k.CgroupsPerQOS {
			c.addForbidden("enforceNodeAllocatable", "%s needs cgroupsPerQOS", what)
		}
	}
}

// evictionSignals returns the signals that are allowed in thresholds.
func evictionSignals() []string {
	return []string{"memory.available", "allocatableMemory.available", "nodefs.available", "nodefs.inodesFree",
		"imagefs.available", "imagefs.inodesFree", "containerfs.available", "containerfs.inodesFree", "pid.available"}
}

func (c *checker) checkEviction() {
	k := c.k
	c.checkThresholds("evictionHard", k.EvictionHard, false)
	c.checkThresholds("evictionSoft", k.EvictionSoft, false)
	c.checkThresholds("evictionMinimumReclaim", k.EvictionMinimumReclaim, true)
	for signal := range k.EvictionSoft {
		if _, ok := k.EvictionSoftGracePeriod[signal]; !ok {
			c.errs = append(c.errs, field.Required(field.NewPath("evictionSoftGracePeriod").Key(signal),
				"evictionSoft requires one for each signal"))
		}
	}
	for signal, v := range k.EvictionSoftGracePeriod {
		path := field.NewPath("evictionSoftGracePeriod").Key(signal)
		if d, err := time.ParseDuration(v); err != nil || d < 0 {
			c.addInvalid(path, v, "must be a duration such as 1m30s")
		}
		c.checkSignal(path, signal)
	}
}

func (c *checker) checkSignal(path *field.Path, checkSignal string) {
	if !slices.Contains(evictionSignals(), checkSignal) {
		c.errs = append(c.errs, field.NotSupported(path, checkSignal, evictionSignals()))
	}
}

// checkThresholds checks a map of eviction signals to quantities or percentages. Some thresholds may be a quantity of zero.
func (c *checker) checkThresholds(name string, list map[string]string, zero bool) {
	for signal, v := range list {
		path := field.NewPath(name).Key(signal)
		c.checkSignal(path, signal)
		if number, ok := strings.CutSuffix(v, "%"); ok {
			if f, err := strconv.ParseFloat(number, 32); err != nil || !(f >= 0 && f <= 100) {
				c.addInvalid(path, v, "must be between 0%% and 100%%")
			}
			continue
		}
		q, err := resource.ParseQuantity(v)
		if err != nil || q.Sign() < 0 || q.IsZero() && !zero {
			c.addInvalid(path, v, "must be a quantity such as 100Mi or a percentage such as 10%%, greater than zero")
		}
	}
}

func (c *checker) checkShutdown() {
	k := c.k
	total, critical := k.ShutdownGracePeriod.Duration, k.ShutdownGracePeriodCriticalPods.Duration
	for path, d := range map[string]time.Duration{"shutdownGracePeriod": total, "shutdownGracePeriodCriticalPods": critical} {
		if d < 0 || d > 0 && d < time.Second {
			c.addInvalid(field.NewPath(path), d.String(), "must be 0 or at least 1s")
		}
	}
	if critical > total {
		c.addInvalid(field.NewPath("shutdownGracePeriodCriticalPods"), critical.String(), "must be at most shutdownGracePeriod (%v)", total)
	}
	if total > 0 && !c.gateIsOn(gateShutdown) {
		c.addForbidden("shutdownGracePeriod", "needs the feature gate %s", gateShutdown)
	}
	if len(k.ShutdownGracePeriodByPodPriority) == 0 {
		return
	}
	if !c.gateIsOn(gateShutdownPriority) {
		c.addForbidden("shutdownGracePeriodByPodPriority", "needs the feature gate %s", gateShutdownPriority)
	}
	if total > 0 || critical > 0 {
		c.addForbidden("shutdownGracePeriodByPodPriority", "cannot be combined with shutdownGracePeriod")
	}
}

func (c *checker) checkFeatures() {
	limit := c.k.CrashLoopBackOff.MaxContainerRestartPeriod
	if limit == nil {
		return
	}
	if !c.gateIsOn(gateCrashLoop) {
		c.addForbidden("crashLoopBackOff.maxContainerRestartPeriod", "needs the feature gate %s", gateCrashLoop)
	}
	checkRange(c, "crashLoopBackOff.maxContainerRestartPeriod", limit.Duration, time.Second, 300*time.Second)
}
