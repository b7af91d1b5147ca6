package api

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// FormatAge returns the time since t in kubectl's format (5m3s).
func FormatAge(t, now time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(max(0, now.Sub(t)))
}

// Pluralize returns a number with a noun in the singular or plural, such as "1 pod" and "2 pods".
func Pluralize(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// FormatSize formats bytes as 12.3MiB.
func FormatSize[T int64 | uint64](n T) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	if i == 0 || f >= 100 {
		return fmt.Sprintf("%.0f%s", f, units[i])
	}
	return fmt.Sprintf("%.1f%s", f, units[i])
}
