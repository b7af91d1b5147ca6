package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/islet-edge/islet/internal/api"
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
func age(t, now time.Time) string { return api.FormatAge(t, now) }

// size returns a number of bytes in a form such as 12.3MiB.
func size[T int64 | uint64](n T) string { return api.FormatSize(n) }
