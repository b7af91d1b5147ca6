package config

import (
	"os"
	"strconv"
	"strings"

	kubelet "k8s.io/kubelet/config/v1beta1"
)

// setMemoryDefaults sets the memory defaults for a machine with the given total memory in bytes. Fields that the user has set are not
// changed. The Notice warns about a setting that removes a protection of a small machine.
func setMemoryDefaults(k *kubelet.KubeletConfiguration, total uint64, isSet func(field string) bool) []Notice {
	aside := defaultReservation(total)
	if isSet("kubeReserved") || isSet("systemReserved") || isSet("reservedMemory") {
		aside = ""
	}
	switch {
	case !isSet("evictionHard"):
		k.EvictionHard["memory.available"] = defaultThreshold(total)
		if aside != "" {
			k.KubeReserved = map[string]string{"memory": aside}
		}
	case aside != "": // both together might exceed the memory
		return []Notice{{"evictionHard",
			"because it is set, this small machine has no default kubeReserved, so that a pod may slow down everything by disk reads: " +
				"set kubeReserved too, such as {memory: " + aside + "}"}}
	}
	return nil
}

// defaultThreshold returns the default of the hard eviction threshold memory.available. The default is 100Mi as in a kubelet, but at most
// an eighth of the machine's memory. The memory is 0 bytes if it is unknown. With 100Mi, a machine with 128 MiB of memory would have no
// memory for pods. If the machine has less than 128 MiB, the default is only a 32nd of its memory, because pods cannot use the memory
// that the threshold reserves.
func defaultThreshold(memory uint64) string {
	if memory == 0 || memory >= largeMemory {
		return defaultEvictionHard()["memory.available"]
	}
	part := uint64(8)
	if memory < tinyMemory {
		part = 32
	}
	return strconv.FormatUint(memory/part>>10, 10) + "Ki"
}

// largeMemory is the minimum memory in bytes of a machine that gets a kubelet's defaults.
const largeMemory = 800 << 20

// tinyMemory is the memory in bytes below which a machine is short of memory for the file pages of programs. On an
// idle machine of 128 MiB, 30 MiB are available. The system and islet need 10 MiB of these 30 MiB for the file
// pages of their programs.
const tinyMemory = 128 << 20

// defaultReservation returns the default of kubeReserved[memory] on a machine with the given memory in bytes. It
// returns "" if there is no default. The kernel, the system's services and islet need about the same amount on every
// machine. On a small machine without the reservation, a pod without a memory limit makes the kernel evict the file
// pages of all programs. Then every program waits for disk reads, for minutes, before the kernel kills a process. The
// reservation is at most nine tenths of the memory. Five sixths were not enough on a machine of 128 MiB, where
// programs can use 92 MiB. With a reservation of five sixths, a pod without a memory limit left only 5 MiB for the
// file pages of all other programs.
func defaultReservation(memory uint64) string {
	const need = 96 << 20
	if memory == 0 || memory >= largeMemory {
		return ""
	}
	return strconv.FormatUint(min(need, memory/10*9)>>10, 10) + "Ki"
}

// totalMemory returns the machine's memory in bytes, or 0 if the file cannot be read.
func totalMemory(meminfo string) uint64 {
	text, err := os.ReadFile(meminfo)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kib, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 50)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}
