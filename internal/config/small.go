package config

import (
	"os"
	"strconv"
	"strings"

	kubelet "k8s.io/kubelet/config/v1beta1"
)

// suit makes the defaults of memory those that suit a machine with so many bytes of it; given
// says which fields somebody set. The notices are of what a setting leaves out on a small one.
func suit(k *kubelet.KubeletConfiguration, there uint64, given func(field string) bool) []Notice {
	aside := setAside(there)
	if given("kubeReserved") || given("systemReserved") || given("reservedMemory") {
		aside = ""
	}
	switch {
	case !given("evictionHard"):
		k.EvictionHard["memory.available"] = keptFree(there)
		if aside != "" {
			k.KubeReserved = map[string]string{"memory": aside}
		}
	case aside != "": // with it besides it might come to more than there is
		return []Notice{{"evictionHard", "it leaves this small machine without the memory that is set aside by default, so that a pod may have all wait for the disk: set kubeReserved too, such as {memory: " + aside + "}"}}
	}
	return nil
}

// keptFree is the default of the hard threshold memory.available where there are so many
// bytes of memory; 0: not known. It is a kubelet's 100Mi, but not more than an eighth: with
// 100Mi a machine of 128 MiB could give nothing to pods. There it is a 32nd, since it is
// taken off the little that pods may have too.
func keptFree(memory uint64) string {
	if memory == 0 || memory >= roomy {
		return defaultEvictionHard()["memory.available"]
	}
	part := uint64(8)
	if memory < tiny {
		part = 32
	}
	return strconv.FormatUint(memory/part>>10, 10) + "Ki"
}

// roomy is from how many bytes of memory on a machine is shared as a kubelet shares it.
const roomy = 800 << 20

// tiny is below how many bytes the pages of programs' files are what is short, and not memory
// for anything else: the system and islet at rest have all but 30 MiB of a machine of 128 MiB,
// and need 10 of these for their own programs.
const tiny = 128 << 20

// setAside is the default of kubeReserved[memory] where there are so many bytes of memory;
// empty: none. What the kernel, the system's own services and islet need hardly depends on
// how much there is, and where there is little the pods together could have it too: then a
// pod without a limit takes the pages of all programs, and for minutes all wait for the
// disk before the kernel ends anything. At most nine tenths are set aside: with five sixths of the
// 92 MiB that programs have of 128, such a pod left 5 MiB for the pages of all other programs.
func setAside(memory uint64) string {
	const need = 96 << 20
	if memory == 0 || memory >= roomy {
		return ""
	}
	return strconv.FormatUint(min(need, memory/10*9)>>10, 10) + "Ki"
}

// memory reads how much there is in bytes; 0: it cannot be read.
func memory(meminfo string) uint64 {
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
