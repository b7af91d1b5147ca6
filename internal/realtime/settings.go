package realtime

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podspec"
)

// Settings contains the scheduling policy, the I/O priority and the limits of a container.
type Settings struct {
	Scheduler    Scheduler
	IO           IOPriority
	LockedMemory int64 // bytes; 0 for the default
	IsolatedCPUs bool

	// BusyLimit and Budget are decisions of the node. The annotations of a pod do not contain them.
	BusyLimit time.Duration // see config.RealTime.BusyLimit; 0 for no limit
	Budget    time.Duration // CPU time of FIFO and RR per period and CPU, on a kernel with budgets for cgroups; 0 for none
}

// prefixes contains the prefixes of the annotations of pods. The name of a container follows the prefix.
var prefixes = []string{keys.Scheduler, keys.IOPriority, keys.LockedMemory, keys.IsolatedCPUs}

// Requested reports whether a pod requests anything that this package interprets.
func Requested(pod *v1.Pod) bool {
	for key := range pod.Annotations {
		if prefix, _ := splitKey(key); prefix != "" {
			return true
		}
	}
	return false
}

// splitKey returns the prefix of an annotation of this package, and the name of the container. The prefix is empty for any other
// annotation.
func splitKey(key string) (prefix, container string) {
	for _, p := range prefixes {
		if name, ok := strings.CutPrefix(key, p); ok {
			return p, name
		}
	}
	return "", ""
}

// Parse returns the settings that a pod requests, by container. An error names the annotation.
func Parse(pod *v1.Pod) (map[string]Settings, error) {
	out := map[string]Settings{}
	for _, key := range slices.Sorted(maps.Keys(pod.Annotations)) {
		prefix, name := splitKey(key)
		if prefix == "" {
			continue
		}
		if kind, ctr := podspec.Find(&pod.Spec, name); ctr == nil || kind == podspec.Ephemeral {
			return nil, fmt.Errorf("annotation %.*s: the pod has no container of that name; ephemeral containers cannot have it",
				maxValue, key)
		}
		s := out[name]
		if err := s.set(prefix, pod.Annotations[key]); err != nil {
			return nil, fmt.Errorf("annotation %s: %w", key, err)
		}
		out[name] = s
	}
	return out, nil
}

func (s *Settings) set(prefix, value string) (err error) {
	switch prefix {
	case keys.Scheduler:
		s.Scheduler, err = ParseScheduler(value)
	case keys.IOPriority:
		s.IO, err = ParseIOPriority(value)
	case keys.LockedMemory:
		s.LockedMemory, err = parseLockedMemory(value)
	case keys.IsolatedCPUs:
		if s.IsolatedCPUs = value == "true"; !s.IsolatedCPUs && value != "false" {
			err = fmt.Errorf("must be true or false")
		}
	}
	return err
}

// WantsIsolatedCPUs reports whether a container of a pod requests CPUs that the kernel isolates.
func WantsIsolatedCPUs(pod *v1.Pod, container string) bool {
	return pod.Annotations[keys.IsolatedCPUs+container] == "true"
}

// Annotate adds the settings that the runtime applies to the annotations of a container's configuration.
func (s Settings) Annotate(annotations map[string]string) {
	set := func(key, value string, is bool) {
		if is {
			annotations[key] = value
		}
	}
	set(keys.ContainerScheduler, s.Scheduler.String(), s.Scheduler.Policy != "")
	set(keys.ContainerIOPriority, s.IO.String(), s.IO.Class != "")
	set(keys.ContainerLockedMemory, strconv.FormatInt(s.LockedMemory, 10), s.LockedMemory != 0)
	set(keys.ContainerBusyLimit, s.BusyLimit.String(), s.BusyLimit != 0)
	set(keys.ContainerBudget, s.Budget.String(), s.Budget != 0)
}

// Read returns the settings in the annotations of a container's configuration. Without such annotations, it returns the zero value.
func Read(annotations map[string]string) (s Settings, err error) {
	for _, field := range []struct {
		key   string
		parse func(string) error
	}{
		{keys.ContainerScheduler, func(v string) error { return s.set(keys.Scheduler, v) }},
		{keys.ContainerIOPriority, func(v string) error { return s.set(keys.IOPriority, v) }},
		{keys.ContainerLockedMemory, func(v string) error { return s.set(keys.LockedMemory, v) }},
		{keys.ContainerBusyLimit, func(v string) (err error) { s.BusyLimit, err = parseDuration("the limit", v); return }},
		{keys.ContainerBudget, func(v string) (err error) { s.Budget, err = parseDuration("the budget", v); return }},
	} {
		if value, ok := annotations[field.key]; ok {
			if err := field.parse(value); err != nil {
				return s, fmt.Errorf("annotation %s of the container: %w", field.key, err)
			}
		}
	}
	return s, nil
}
