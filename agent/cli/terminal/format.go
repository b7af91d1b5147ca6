package terminal

import (
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/printable"
)

// PrintObject writes an object as JSON or YAML, for scripts.
func PrintObject(t *command.Tool, format string, object any) error {
	data, err := json.MarshalIndent(object, "", "    ")
	switch {
	case err != nil:
		return err
	case format == "yaml":
		data, err = yaml.JSONToYAML(data)
	case format != "json":
		return command.Usage("output %q: must be json or yaml", format)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(t.Out, strings.TrimSuffix(string(data), "\n"))
	return err
}

// IndentLines makes each line of a text safe for a terminal. It indents all of them except the first.
func IndentLines(text string) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	for i := range all {
		all[i] = printable.Line(all[i])
	}
	return strings.Join(all, "\n  ")
}
