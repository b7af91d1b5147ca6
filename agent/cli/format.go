package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"
)

// printObject writes an object as JSON or YAML, for scripts.
func (t *tool) printObject(format string, object any) error {
	data, err := json.MarshalIndent(object, "", "    ")
	switch {
	case err != nil:
		return err
	case format == "yaml":
		data, err = yaml.JSONToYAML(data)
	case format != "json":
		return usage("output %q: must be json or yaml", format)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(t.out, strings.TrimSuffix(string(data), "\n"))
	return err
}

// age returns the time since t in kubectl's format (5m3s).
func age(t time.Time, now time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(max(0, now.Sub(t)))
}

// size formats bytes as 12.3MiB.
func size[T int64 | uint64](n T) string {
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

func pluralize(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
