package demand

import "cmp"

// MinShares and MaxShares are the limits of the kernel for CPU shares.
const (
	MinShares = 2
	MaxShares = 262144
)

const (
	usualPeriod = 100_000 // microseconds, the default CPU period of a kubelet
	minQuota    = 1_000   // microseconds
)

// CPUShares converts a CPU request in thousandths of a CPU to CPU shares, in the same way as a kubelet. See
// https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/.
func CPUShares(milli int64) int64 {
	if milli <= 0 {
		return MinShares
	}
	return min(max(milli*1024/1000, MinShares), MaxShares)
}

// CPUQuota converts a CPU limit in thousandths of a CPU to a quota and its period in microseconds. A period of zero means 100 ms.
func CPUQuota(milli, period int64) (quota, usedPeriod int64) {
	usedPeriod = cmp.Or(period, usualPeriod)
	return max(milli*usedPeriod/1000, minQuota), usedPeriod
}
